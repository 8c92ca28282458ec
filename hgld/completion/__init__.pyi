from .complete import complete_file as complete_file
from .inputs import CompletionFiles as CompletionFiles
from .inputs import find_completion_files as find_completion_files
from .quality import evaluate_completion as evaluate_completion
from .settings import CompleteConfig as CompleteConfig
