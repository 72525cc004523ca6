-- How Wireshark reads the headers and control messages of Pillarbox's servers.
-- Written by `pillarbox dissector`: the tables come from the layouts in hosts/wire.
--
-- A layout lists its fields. Each has
--   name, bits, at (its offset in bits), and where they apply
--   constant (its only value), most (its largest), reason (what a wrong value is called),
--   field (Wireshark's name for it).
-- Frames that a server would refuse carry the expert item pillarbox.bad with the server's reason.

local LAYOUTS = --[[LAYOUTS]] nil
local HEADERS = --[[HEADERS]] nil -- by version: its forms by their words, and where a path is in it
local MESSAGES = --[[MESSAGES]] nil -- by protocol number: layout of the head, and of each entry
local MEANINGS = --[[MEANINGS]] nil
local NUMBERS = --[[NUMBERS]] nil

local common = Proto("pillarbox", "Pillarbox")
common.fields = {}
local bad = ProtoExpert.new("pillarbox.bad", "A server refuses this", expert.group.MALFORMED,
                            expert.severity.ERROR)
local damaged = ProtoExpert.new("pillarbox.damaged", "A packet inside is damaged",
                                expert.group.MALFORMED, expert.severity.ERROR)
common.experts = { bad, damaged }

-- -- fields ---------------------------------------------------------------------------------------

local TYPES = { [8] = "UINT8", [16] = "UINT16", [24] = "UINT24", [32] = "UINT32", [64] = "UINT64" }
local protos = {}

-- Wireshark 4.2 has Lua 5.2 and 4.4 has Lua 5.4: no operators on bits that both know.
local function power_of_two(exponent)
    local power = 1
    for _ = 1, exponent do power = power * 2 end
    return power
end

local function bits_behind(field) -- in the last byte that it is in
    return 8 - field.at % 8 - field.bits
end

local function proto_field(field, prefix)
    local whole = field.bits
    local mask = nil
    if TYPES[whole] == nil then -- some bits of one byte
        whole = 8
        mask = (power_of_two(field.bits) - 1) * power_of_two(bits_behind(field))
    end
    local base_ = base.DEC
    if field.name == "checksum" or field.name == "identification" then base_ = base.HEX end
    return ProtoField.new(field.title, prefix .. "." .. field.name, ftypes[TYPES[whole]],
                          field.meaning and MEANINGS[field.meaning] or nil, base_, mask)
end

local function declare(layout)
    for _, field in ipairs(layout.fields) do
        if field.name == "reserved" then
            field.abbreviation = layout.prefix .. ".reserved"
        end
        field.field = proto_field(field, layout.prefix)
        table.insert(common.fields, field.field)
    end
end

for _, name in ipairs(NUMBERS.order) do declare(LAYOUTS[name]) end

local direction = ProtoField.new("Direction", "dpillar.direction", ftypes.UINT8,
                                 { [0] = "clockwise", [1] = "counter-clockwise" }, base.DEC)
local proxy_source = ProtoField.new("Proxy Source", "dpillar.proxy_source", ftypes.IPv4)
local proxy_destination = ProtoField.new("Proxy Destination", "dpillar.proxy_destination",
                                         ftypes.IPv4)
for _, field in ipairs({ direction, proxy_source, proxy_destination }) do
    table.insert(common.fields, field)
end

-- -- values ---------------------------------------------------------------------------------------

local function covering(field, start) -- the bytes that a field is in
    local first = start + math.floor(field.at / 8)
    return first, math.max(1, math.floor(field.bits / 8))
end

local function value_of(data, field, start) -- none has more than 32 bits where it is compared
    local first, size = covering(field, start)
    if field.bits > 32 then return nil end
    local value = data(first, size):uint()
    if field.bits < 8 then
        value = math.floor(value / power_of_two(bits_behind(field))) % power_of_two(field.bits)
    end
    return value
end

local function checksum(data, start, size, hole) -- RFC 1071, with the checksum itself as zero
    local sum = 0
    for i = start, start + size - 1, 2 do
        local word = data(i, 1):uint() * 256
        if i + 1 < start + size then word = word + data(i + 1, 1):uint() end
        if i ~= hole then sum = sum + word end
    end
    while sum > 0xffff do sum = sum % 0x10000 + math.floor(sum / 0x10000) end
    return 0xffff - sum
end

local function complain(tree, reason, text)
    tree:add_proto_expert_info(bad, reason .. ": " .. text)
end

-- Adds a header's fields; returns its values by name, or nil where the header is not all there.
-- The checksum covers the header, or as many bytes as `covered` says if that is more.
local function dissect_layout(layout, data, start, tree, covered)
    local wanted = math.max(layout.size, covered or 0)
    if data:len() - start < wanted then
        complain(tree, "truncated", layout.title .. " has " .. wanted .. " bytes")
        return nil
    end
    local values = {}
    local right = true
    for _, field in ipairs(layout.fields) do
        local first, size = covering(field, start)
        local item = tree:add(field.field, data(first, size))
        local value = value_of(data, field, start)
        values[field.name] = value
        if field.constant and value ~= field.constant then
            complain(item, field.reason, field.title .. " must be " .. field.constant)
            right = false
        elseif field.most and value and value > field.most then
            complain(item, field.reason, field.title .. " must be at most " .. field.most)
            right = false
        end
        if field.name == "checksum" then
            local hole = first
            local expected = checksum(data, start, wanted, hole)
            if value ~= expected then
                complain(item, "bad checksum", string.format("it should be 0x%04x", expected))
                right = false
            end
        end
    end
    values.right = right
    return values
end

-- -- control messages -----------------------------------------------------------------------------

local function check_path_probe(values, tree)
    for _, entry in ipairs(values.entries) do
        if entry > NUMBERS.most_uid and entry < NUMBERS.byone then
            complain(tree, "bad field", "a PR entry is a uid, BYZERO or BYONE")
        end
    end
end

local function dissect_message(number, data, pinfo, root)
    local message = MESSAGES[number]
    local tree = root:add(common, data(), message.title)
    pinfo.cols.protocol = message.title
    local values = dissect_layout(LAYOUTS[message.head], data, 0, tree, data:len())
    if values == nil then return end
    values.entries = {}
    local size = LAYOUTS[message.head].size
    local each = message.each and LAYOUTS[message.each]
    if each then
        local first = size
        size = size + values.count * each.size
        for start = first, math.min(size, data:len()) - each.size, each.size do
            local entry = tree:add(common, data(start, each.size), "entry")
            dissect_layout(each, data, start, entry)
            if each.fields[1].bits <= 32 then
                table.insert(values.entries, value_of(data, each.fields[1], start))
            end
        end
    end
    if size ~= data:len() then
        complain(tree, "bad length", "the message has " .. size .. " bytes, not " .. data:len())
    elseif message.name == "path_probe" then
        check_path_probe(values, tree)
    end
end

for number, message in pairs(MESSAGES) do
    protos[number] = Proto("pillarbox_" .. message.name, "Pillarbox " .. message.title)
    protos[number].dissector = function(data, pinfo, root)
        dissect_message(number, data, pinfo, root)
        return data:len()
    end
    -- DPillar's servers and FiConn's send them in IP packets.
    DissectorTable.get("ip.proto"):add(number, protos[number])
end

-- -- headers --------------------------------------------------------------------------------------

local ip = Dissector.get("ip")

local function payload(values, data, start, pinfo, root, tree)
    local left = data:len() - start
    if values.payload_length > left then
        complain(tree, "truncated", values.payload_length .. " bytes should follow the header")
        return
    end
    local message = MESSAGES[values.protocol]
    local is_packet = values.protocol == NUMBERS.ipv4 or values.protocol == NUMBERS.returned
    if message == nil and not is_packet then
        complain(tree, "unknown message", "no control message has this protocol")
    elseif values.payload_length == 0 then
        if message then complain(tree, "truncated", "the message is empty") end
    elseif message then
        local inside = data(start, values.payload_length):tvb()
        dissect_message(values.protocol, inside, pinfo, root)
    else
        -- A damaged packet ends Wireshark's own dissector with an error.
        local inside = data(start, values.payload_length):tvb()
        if not pcall(ip.call, ip, inside, pinfo, root) then
            tree:add_proto_expert_info(damaged, "the packet inside is damaged")
        end
    end
end

local function check_path(path, values, tree)
    local length, taken = values[path.length], values[path.taken]
    local wrong = taken > length
    for i, name in ipairs(path.hops) do
        if i > length and values[name] ~= 0 then wrong = true end
    end
    if wrong then complain(tree, "bad path", "zeros follow the hops, of which some are taken") end
end

local function dissect_header(header, words, data, pinfo, root)
    local layout = LAYOUTS[header.forms[words] or header.usual]
    pinfo.cols.protocol = header.proto.name
    local tree = root:add(header.proto, data(0, math.min(layout.size, data:len())))
    local values = dissect_layout(layout, data, 0, tree)
    if values == nil then return end
    if header.path then check_path(header.path, values, tree) end
    if values.source and values.destination then
        pinfo.cols.info = values.source .. " -> " .. values.destination
    end
    payload(values, data, layout.size, pinfo, root, tree)
end

for _, header in pairs(HEADERS) do
    header.proto = Proto(header.name, header.name:upper() .. " header")
end
local usual = HEADERS[NUMBERS.usual_version]

function usual.proto.dissector(data, pinfo, root)
    if data:len() == 0 then
        complain(root:add(usual.proto), "truncated", "nothing follows Ethernet's header")
        return 0
    end
    local first = data(0, 1):uint()
    local header = HEADERS[math.floor(first / 16)] or usual
    dissect_header(header, first % 16, data, pinfo, root)
    return data:len()
end

DissectorTable.get("ethertype"):add(NUMBERS.ethertype, usual.proto)

-- -- DPillar's tunnels: IP in IP, whose outer addresses are the proxies ----------------------------

local dpillar = Proto("dpillar", "DPillar tunnel")
local sources = Field.new("ip.src")
local destinations = Field.new("ip.dst")
local protocols = Field.new("ip.proto")

-- A header that is cut off has no addresses, and those of a reassembled packet are in other bytes.
local function is_in(data, address)
    return address ~= nil and address.offset + 4 <= data:len()
        and data(address.offset, 4):ipv4() == address.value
end

function dpillar.dissector(data, pinfo, root)
    local outer = protocols()
    if outer == nil or outer.value ~= NUMBERS.ip_in_ip then return end
    local from, to = sources(), destinations()
    if not (is_in(data, from) and is_in(data, to)) then return end
    local tree = root:add(dpillar, data(from.offset, to.offset + 4 - from.offset))
    local last = data(from.offset + 3, 1):uint() % 2
    tree:add(direction, data(from.offset + 3, 1), last)
    tree:add(proxy_source, data(from.offset, 4))
    tree:add(proxy_destination, data(to.offset, 4))
    if data(to.offset + 3, 1):uint() % 2 == 1 then
        complain(tree, "bad field", "the destination of a tunnel has the NIC bit 0")
    end
end

register_postdissector(dpillar)
