"""``pillarbox cable``: as at the prompt of a running lab."""

from experiments.control.remote import command_of

command = command_of("cable")
