#pragma once

#include <string_view>

/// The words of options that choose from a fixed list. Names of things that users may add to, such
/// as optimizers, are in the tables of their own folders.
namespace gradus::config {

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
inline constexpr std::string_view kCommHooks[] = {"no", "fp16", "bf16"};
inline constexpr std::string_view kCpuMatmuls[] = {"torch", "onednn"};
inline constexpr std::string_view kBf16Modes[] = {"auto", "autocast", "master"};
inline constexpr std::string_view kSpikeActions[] = {"none", "skip", "rollback"};

}  // namespace gradus::config
