#include "config/removed_names.h"

#include <algorithm>

namespace gradus::config {
namespace {

constexpr RemovedName kRemoved[] = {
    {"adafactor", "optim", "Use --optim adafactor."},
    {"dispatch_batches", "accelerator_config",
     "Use --accelerator_config '{\"dispatch_batches\": true}'."},
    {"evaluate_during_training", "eval_strategy", "Use --eval_strategy steps."},
    {"evaluation_strategy", "eval_strategy", "Use --eval_strategy."},
    {"fp16_backend", "fp16", "Use --fp16; there is one implementation of mixed precision."},
    {"fp16_opt_level", "fp16", "Use --fp16; it belonged to Apex, which is gone."},
    {"fsdp_min_num_params", "fsdp_config", "It became min_num_params of fsdp_config."},
    {"fsdp_transformer_layer_cls_to_wrap", "fsdp_config",
     "It became transformer_layer_cls_to_wrap of fsdp_config, which is not needed."},
    {"group_by_length", "train_sampling_strategy",
     "Use --train_sampling_strategy group_by_length."},
    {"half_precision_backend", "fp16",
     "Use --fp16 or --bf16; there is one implementation of mixed precision."},
    {"include_inputs_for_metrics", "include_for_metrics", "Use --include_for_metrics inputs."},
    {"include_tokens_per_second", "include_num_input_tokens_seen",
     "Use --include_num_input_tokens_seen; the run then reports its tokens per second."},
    {"jit_mode_eval", "use_cpu", "Leave it out: there is nothing to trace with jit here."},
    {"logging_dir", "report_to",
     "Set the environment variable TENSORBOARD_LOGGING_DIR; without it the event files lie in "
     "output_dir/runs."},
    {"mp_parameters", "output_dir", "Leave it out: it belonged to SageMaker's launcher."},
    {"no_cuda", "use_cpu", "Use --use_cpu."},
    {"past_index", "output_dir", "Leave it out: no model here returns a past to go on from."},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size", "Use --per_device_eval_batch_size."},
    {"per_gpu_train_batch_size", "per_device_train_batch_size",
     "Use --per_device_train_batch_size."},
    {"push_to_hub_model_id", "hub_model_id",
     "It became --hub_model_id; gradus does not talk to the Hub."},
    {"push_to_hub_organization", "hub_model_id",
     "It became part of --hub_model_id; gradus does not talk to the Hub."},
    {"push_to_hub_token", "hub_token", "It became --hub_token; gradus does not talk to the Hub."},
    {"ray_scope", "output_dir", "Leave it out: gradus has no hyperparameter search by Ray."},
    {"save_safetensors", "save_strategy", "Leave it out: weights are always safetensors."},
    {"sharded_ddp", "fsdp", "It became --fsdp."},
    {"split_batches", "accelerator_config",
     "Use --accelerator_config '{\"split_batches\": true}'."},
    {"torchdynamo", "torch_compile_backend", "It became --torch_compile_backend."},
    {"tpu_metrics_debug", "debug", "It became --debug tpu_metrics_debug."},
    {"tpu_num_cores", "use_cpu", "Leave it out: gradus does not run on TPUs."},
    {"use_ipex", "use_cpu", "Leave it out: gradus does not use Intel's extension of PyTorch."},
    {"use_legacy_prediction_loop", "prediction_loss_only",
     "Leave it out: there is one prediction loop."},
    {"use_mps_device", "use_cpu", "Leave it out: the device is found by itself."},
    {"warmup_ratio", "warmup_steps",
     "Use --warmup_steps; a value below 1 is a share of all steps."},
    {"xpu_backend", "ddp_backend", "Use --ddp_backend."},
};

}  // namespace

std::optional<RemovedName> find_removed(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRemoved), std::end(kRemoved),
                                 [&](const auto& removed) { return removed.name == name; });
  return row == std::end(kRemoved) ? std::nullopt : std::optional(*row);
}

}  // namespace gradus::config
