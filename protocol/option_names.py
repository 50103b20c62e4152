"""The option names of both programs.

One environment and one config file may serve both, so each program must know the other's names to tell a misspelt
name from one that is not meant for it. A test compares these sets with the two config classes.
"""

ENGINE_OPTIONS = frozenset(
    {
        "block_size",
        "device",
        "dtype",
        "enable_prefix_caching",
        "endpoint",
        "gpu_memory_utilization",
        "insecure_tcp",
        "kv_cache_memory",
        "load_format",
        "log_format",
        "log_level",
        "max_logprobs",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
        "max_num_seqs",
        "model",
        "num_kv_blocks",
        "pooling",
        "quantization",
        "revision",
        "scheduling_policy",
        "shutdown_timeout",
        "threads",
        "warmup",
    }
)

FRONTEND_OPTIONS = frozenset(
    {
        "access_log",
        "access_log_exclude",
        "allow_credentials",
        "allowed_headers",
        "allowed_methods",
        "allowed_origins",
        "api_key",
        "api_key_file",
        "chat_template",
        "chat_template_content_format",
        "default_chat_template_kwargs",
        "engine",
        "generation_config",
        "host",
        "insecure_tcp",
        "log_format",
        "log_level",
        "log_requests",
        "max_body_size",
        "max_header_size",
        "max_inflight",
        "max_n",
        "max_prompts",
        "max_stop",
        "metrics",
        "metrics_auth",
        "metrics_prefix",
        "override_generation_config",
        "port",
        "request_timeout",
        "response_role",
        "root_path",
        "served_model_name",
        "shutdown_timeout",
        "sse_keep_alive_interval",
        "stream_interval",
        "strict_params",
        "uds",
    }
)
