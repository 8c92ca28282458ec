"""Retrieval protocols: from input files to tasks.

A protocol is a module with an :class:`~hgld.evaluation.evaluation_files.EvaluationProtocol`, and a line in
:data:`hgld.evaluation.settings.PROTOCOLS`.
"""
