"""One file per dataset, which owns all facts about it."""
