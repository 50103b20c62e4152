"""``lm_eval`` with its two models for such a server, on tasks made from documents that the task brings along.

Scores are asked from completions, texts from completions and from chat.
"""

import os
from typing import Any

from driver import TASK, Report

# Nothing here is on a hub, and nobody waits for a progress bar.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": TASK["cache"], "TQDM_DISABLE": "1"}
os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "OPENAI_API_KEY": "none"}

from lm_eval import simple_evaluate
from lm_eval.utils import RemoteTokenizer, check_remote_tokenizer_support

DATA = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": TASK["documents"]}}, "test_split": "test"}
SCORED = {
    **DATA,
    "task": "scored",
    "output_type": "multiple_choice",
    "doc_to_text": "{{context}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": 0,
    "target_delimiter": " ",
}
GENERATED = {
    **DATA,
    "task": "generated",
    "output_type": "generate_until",
    "doc_to_text": "{{context}}",
    "doc_to_target": "{{choices[0]}}",
    "generation_kwargs": {"until": TASK["until"], "max_gen_toks": TASK["max_tokens"], "temperature": 0},
    "metric_list": [{"metric": "exact_match"}],
}
ROUTES = {"local-completions": "/completions", "local-chat-completions": "/chat/completions"}


def evaluate(model: str, task: dict[str, Any], **options: Any) -> Any:
    """Run a task; metrics by name, and for each sample what the server answered to each of its requests."""
    arguments = {"model": TASK["model"], "base_url": TASK["base_url"] + ROUTES[model], **options}
    chat = model == "local-chat-completions"
    evaluation = simple_evaluate(
        model, model_args=arguments, tasks=[task], apply_chat_template=chat, bootstrap_iters=0, log_samples=True
    )
    [samples] = evaluation["samples"].values()
    [metrics] = evaluation["results"].values()
    in_order = sorted(samples, key=lambda sample: sample["doc_id"])
    answers = [[responses[0] for responses in sample["resps"]] for sample in in_order]
    return {"metrics": metrics, "answers": answers}


with Report() as report:
    tokenizer = {"tokenizer_backend": "huggingface", "tokenizer": TASK["tokenizer"]}

    @report.others("scores")
    def _() -> Any:
        return evaluate("local-completions", SCORED, **tokenizer)

    @report.others("scores in batches")
    def _() -> Any:
        return evaluate("local-completions", SCORED, **tokenizer, batch_size=4)

    @report.others("scores with the server's tokenizer")
    def _() -> Any:
        return evaluate("local-completions", SCORED, tokenizer_backend="remote")

    @report.others("the server's tokenizer")
    def _() -> Any:
        tokenizer = RemoteTokenizer(TASK["base_url"] + ROUTES["local-completions"])
        return {
            "eos": [tokenizer.eos_token, tokenizer.eos_token_id],
            "bos": [tokenizer.bos_token, tokenizer.bos_token_id],
            "chat": tokenizer.apply_chat_template(TASK["messages"]),
            "found": check_remote_tokenizer_support(TASK["base_url"] + ROUTES["local-completions"]),
        }

    @report.others("texts of completions")
    def _() -> Any:
        return evaluate("local-completions", GENERATED, **tokenizer)

    @report.others("texts of chat")
    def _() -> Any:
        return evaluate("local-chat-completions", GENERATED)
