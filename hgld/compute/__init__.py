"""Processes, threads, memory and the machine that hgld runs on."""
