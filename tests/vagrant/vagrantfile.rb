# Prints as JSON what the Vagrantfile sets for each of its providers. It is run without Vagrant, so
# that providers whose plugins are not installed are seen too; what is not known here is an error.
require "json"
require "ostruct"

Machine = Struct.new(:box, :hostname, :ports, :folders, :provisions) do
  def network(kind, **options) = ports << { kind: kind, **options }

  def synced_folder(host, guest, **options) = folders[guest] = { host: host, **options }

  def provision(kind, **options) = provisions << { kind: kind, **options }

  def provider(name, &block) = (PROVIDERS[name] = block)
end

Config = Struct.new(:vm)
PROVIDERS = {}

module Vagrant
  def self.configure(version, &block) = (CONFIGURED << [version, block])
end

CONFIGURED = []

def fresh = Config.new(Machine.new(nil, nil, [], {}, []))

load ARGV.fetch(0)
((version, everywhere)) = CONFIGURED
everywhere.call(fresh)
told = PROVIDERS.keys.to_h do |name|
  config = fresh
  everywhere.call(config)
  settings = OpenStruct.new
  PROVIDERS[name].call(settings, config)
  [name, { **config.vm.to_h, settings: settings.to_h }]
end
puts JSON.dump(version: version, providers: told)
