"""Where the work runs. Both places answer the protocol `Chunks` of `engram.types`; only `audit` and the CLI choose one."""
