#pragma once

#include <string_view>

/// The words transformers accepts for options that choose.
namespace gradus::config {

inline constexpr std::string_view kSchedulers[] = {"linear",
                                                   "cosine",
                                                   "cosine_with_restarts",
                                                   "polynomial",
                                                   "constant",
                                                   "constant_with_warmup",
                                                   "inverse_sqrt",
                                                   "reduce_lr_on_plateau",
                                                   "cosine_with_min_lr",
                                                   "cosine_warmup_with_min_lr",
                                                   "warmup_stable_decay",
                                                   "greedy"};

inline constexpr std::string_view kOptimizers[] = {"adamw_torch",
                                                   "adamw_torch_fused",
                                                   "adamw_torch_xla",
                                                   "adamw_torch_npu_fused",
                                                   "adafactor",
                                                   "adamw_anyprecision",
                                                   "adamw_torch_4bit",
                                                   "adamw_torch_8bit",
                                                   "ademamix",
                                                   "sgd",
                                                   "adagrad",
                                                   "adamw_bnb_8bit",
                                                   "adamw_8bit",
                                                   "ademamix_8bit",
                                                   "lion_8bit",
                                                   "lion_32bit",
                                                   "paged_adamw_32bit",
                                                   "paged_adamw_8bit",
                                                   "paged_ademamix_32bit",
                                                   "paged_ademamix_8bit",
                                                   "paged_lion_32bit",
                                                   "paged_lion_8bit",
                                                   "rmsprop",
                                                   "rmsprop_bnb",
                                                   "rmsprop_bnb_8bit",
                                                   "rmsprop_bnb_32bit",
                                                   "galore_adamw",
                                                   "galore_adamw_8bit",
                                                   "galore_adafactor",
                                                   "galore_adamw_layerwise",
                                                   "galore_adamw_8bit_layerwise",
                                                   "galore_adafactor_layerwise",
                                                   "lomo",
                                                   "adalomo",
                                                   "grokadamw",
                                                   "schedule_free_radam",
                                                   "schedule_free_adamw",
                                                   "schedule_free_sgd",
                                                   "apollo_adamw",
                                                   "apollo_adamw_layerwise",
                                                   "stable_adamw",
                                                   "muon"};  // the last is ours

inline constexpr std::string_view kIntervals[] = {"no", "steps", "epoch"};
inline constexpr std::string_view kSaveIntervals[] = {"no", "steps", "epoch", "best"};
inline constexpr std::string_view kHubStrategies[] = {"end", "every_save", "checkpoint",
                                                      "all_checkpoints"};
inline constexpr std::string_view kLogLevels[] = {"detail", "debug",    "info",   "warning",
                                                  "error",  "critical", "passive"};
inline constexpr std::string_view kTokenCounts[] = {"all", "non_padding", "no"};
inline constexpr std::string_view kMetricInputs[] = {"inputs", "loss"};
inline constexpr std::string_view kStartMethods[] = {"fork", "spawn", "forkserver"};
inline constexpr std::string_view kSamplings[] = {"random", "sequential", "group_by_length",
                                                  "batch_rebalance"};
inline constexpr std::string_view kBackends[] = {"nccl", "gloo", "mpi", "xccl",
                                                 "hccl", "cncl", "mccl"};
inline constexpr std::string_view kDebugOptions[] = {"underflow_overflow", "tpu_metrics_debug"};
inline constexpr std::string_view kLossWeightings[] = {"samples", "tokens"};
inline constexpr std::string_view kGraphModes[] = {"auto", "on", "off"};
inline constexpr std::string_view kBf16Modes[] = {"auto", "autocast", "master"};

/// The trackers gradus has, and the others that transformers knows.
inline constexpr std::string_view kTrackers[] = {"jsonl", "tensorboard"};
inline constexpr std::string_view kForeignTrackers[] = {
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte",
    "kubeflow", "mlflow",  "neptune",    "swanlab",  "trackio", "wandb"};

}  // namespace gradus::config
