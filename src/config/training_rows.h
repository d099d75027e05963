#pragma once

#include <gradus/config/option_table.h>
#include <gradus/config/training_arguments.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/schedulers.h>
#include <gradus/trackers/tracker.h>

#include "config/training_choices.h"

/// One row for each field of training_arguments_fields.inc, in its order; see training_options.cpp
/// for the check.
namespace gradus::config {

inline constexpr double kMaxSeed = 4294967295.0;

// clang-format off
using A = TrainingArguments;  // keeps the rows short
inline constexpr OptionRow<A> kTrainingRows[] = {
    {&A::output_dir, "output_dir", Group::output, any_value(),
     "Folder for checkpoints, results and the trained model; `trainer_output` when not set. A "
     "leading ~ is the home folder."},

    {&A::per_device_train_batch_size, "per_device_train_batch_size", Group::duration, at_least(1),
     "Examples per device in one forward and backward pass."},
    {&A::num_train_epochs, "num_train_epochs", Group::duration, at_least(0),
     "Passes over the training data; a fraction ends inside the last one."},
    {&A::max_steps, "max_steps", Group::duration, at_least(-1),
     "Number of update steps, if positive; overrides num_train_epochs. Needed for data without a "
     "length."},

    {&A::learning_rate, "learning_rate", Group::schedule, at_least(0),
     "The highest learning rate of the schedule."},
    {&A::lr_scheduler_type, "lr_scheduler_type", Group::schedule, one_of(scheduler_names),
     "How the learning rate changes over the run."},
    {&A::lr_scheduler_kwargs, "lr_scheduler_kwargs", Group::schedule, holds(Shape::dictionary),
     "Extra settings of the schedule, such as {\"num_cycles\": 2} or {\"min_lr\": 1e-6}."},
    {&A::warmup_steps, "warmup_steps", Group::schedule, at_least(0),
     "Steps of linear warm-up; a value below 1 is a share of all steps."},

    {&A::optim, "optim", Group::optimizer, one_of(optimizer_names),
     "The optimizer."},
    {&A::optim_args, "optim_args", Group::optimizer, any_value(),
     "Extra settings of the optimizer, as key=value,key=value."},
    {&A::weight_decay, "weight_decay", Group::optimizer, at_least(0),
     "Decoupled weight decay; not for biases and normalization weights."},
    {&A::adam_beta1, "adam_beta1", Group::optimizer, within_below(0, 1),
     "Decay of Adam's running mean of gradients."},
    {&A::adam_beta2, "adam_beta2", Group::optimizer, within_below(0, 1),
     "Decay of Adam's running mean of squared gradients."},
    {&A::adam_epsilon, "adam_epsilon", Group::optimizer, at_least(0),
     "Added to Adam's denominator."},
    {&A::optim_target_modules, "optim_target_modules", Group::optimizer, any_value(),
     "Modules that GaLore and APOLLO work on: names, or a pattern."},

    {&A::gradient_accumulation_steps, "gradient_accumulation_steps", Group::regularization,
     at_least(1),
     "Forward and backward passes whose gradients are summed for one update."},
    {&A::average_tokens_across_devices, "average_tokens_across_devices", Group::regularization,
     any_value(),
     "Divide the loss by the tokens of all processes together, so that every token counts the "
     "same."},
    {&A::max_grad_norm, "max_grad_norm", Group::regularization, any_value(),
     "Clip gradients to this norm; 0 does not clip (the norm is still logged)."},
    {&A::label_smoothing_factor, "label_smoothing_factor", Group::regularization, within(0, 1),
     "Share of the target that is spread over all classes; 0 is none."},

    {&A::bf16, "bf16", Group::precision, any_value(),
     "Train in mixed precision with bfloat16."},
    {&A::fp16, "fp16", Group::precision, any_value(),
     "Train in mixed precision with float16 and loss scaling."},
    {&A::bf16_full_eval, "bf16_full_eval", Group::precision, any_value(),
     "Evaluate with the whole model in bfloat16."},
    {&A::fp16_full_eval, "fp16_full_eval", Group::precision, any_value(),
     "Evaluate with the whole model in float16."},
    {&A::tf32, "tf32", Group::precision, any_value(),
     "Use TF32 in fp32 matrix products of the GPU; not set leaves LibTorch's own choice."},

    {&A::gradient_checkpointing, "gradient_checkpointing", Group::gradient_checkpointing,
     any_value(),
     "Recompute activations in the backward pass: less memory, more time."},
    {&A::gradient_checkpointing_kwargs, "gradient_checkpointing_kwargs",
     Group::gradient_checkpointing, holds(Shape::dictionary),
     "Settings of gradient checkpointing: every_n_layers (only the first of every n blocks), "
     "offload (keep the inputs of a block in host memory), preserve_rng_state."},

    {&A::torch_compile, "torch_compile", Group::compilation, any_value(),
     "A Python feature; accepted with a warning. LibTorch's own kernels run."},
    {&A::torch_compile_backend, "torch_compile_backend", Group::compilation, any_value(),
     "Backend of torch.compile; turns torch_compile on. No effect here."},
    {&A::torch_compile_mode, "torch_compile_mode", Group::compilation, any_value(),
     "Mode of torch.compile; turns torch_compile on. No effect here."},

    {&A::use_liger_kernel, "use_liger_kernel", Group::kernels, any_value(),
     "A Python package of GPU kernels; accepted with a warning. gradus has its own kernels."},
    {&A::liger_kernel_config, "liger_kernel_config", Group::kernels,
     holds(Shape::dictionary).typed("dict | None"),
     "Settings of Liger kernels. No effect here."},

    {&A::use_cache, "use_cache", Group::optimizations, any_value(),
     "The value of use_cache in the trained model's config.json. Training itself uses no cache."},
    {&A::neftune_noise_alpha, "neftune_noise_alpha", Group::optimizations, any_value(),
     "Strength of NEFTune noise on embeddings in training; usual values are 5 to 15."},
    {&A::torch_empty_cache_steps, "torch_empty_cache_steps", Group::optimizations, at_least(1),
     "Release unused GPU memory every N steps; never when not set."},
    {&A::auto_find_batch_size, "auto_find_batch_size", Group::optimizations, any_value(),
     "After running out of memory, start again with a smaller batch."},

    {&A::logging_strategy, "logging_strategy", Group::logging, one_of(kIntervals),
     "When to log."},
    {&A::logging_steps, "logging_steps", Group::logging, at_least(0),
     "Steps between two logs; a value below 1 is a share of all steps."},
    {&A::logging_first_step, "logging_first_step", Group::logging, any_value(),
     "Also log the first step."},
    {&A::log_on_each_node, "log_on_each_node", Group::logging, any_value(),
     "With several machines, log on each, not only on the first."},
    {&A::logging_nan_inf_filter, "logging_nan_inf_filter", Group::logging, any_value(),
     "Exclude NaN and infinite losses from the logged mean; training is not changed."},
    {&A::include_num_input_tokens_seen, "include_num_input_tokens_seen", Group::logging,
     one_of(kTokenCounts).boolean_as("all", "no").typed("str | bool"),
     "Count the tokens trained on: all, all but padding, or none; true means all."},

    {&A::log_level, "log_level", Group::log_levels, one_of(kLogLevels),
     "Messages of the main process; passive leaves the level as it is."},
    {&A::log_level_replica, "log_level_replica", Group::log_levels, one_of(kLogLevels),
     "Messages of the other processes."},
    {&A::disable_tqdm, "disable_tqdm", Group::log_levels, any_value(),
     "No progress bars; when not set they are shown unless only errors are logged."},

    {&A::report_to, "report_to", Group::tracking,
     one_of(tracker_choices).typed("str | list[str] | None"),
     "Where logs go besides the console: names of trackers, all or none."},
    {&A::run_name, "run_name", Group::tracking, any_value(),
     "A name for the run in trackers."},
    {&A::project, "project", Group::tracking, any_value(),
     "Project name in Trackio."},
    {&A::trackio_space_id, "trackio_space_id", Group::tracking, any_value(),
     "Space for Trackio. No effect here."},
    {&A::trackio_bucket_id, "trackio_bucket_id", Group::tracking, any_value(),
     "Bucket for Trackio. No effect here."},
    {&A::trackio_static_space_id, "trackio_static_space_id", Group::tracking,
     holds(Shape::text_or_false),
     "Static Space for Trackio. No effect here."},

    {&A::eval_strategy, "eval_strategy", Group::evaluation, one_of(kIntervals),
     "When to evaluate during training."},
    {&A::eval_steps, "eval_steps", Group::evaluation, at_least(0),
     "Steps between two evaluations; logging_steps when not set; a value below 1 is a share of "
     "all steps."},
    {&A::eval_delay, "eval_delay", Group::evaluation, at_least(0),
     "Epochs or steps, as eval_strategy counts, before the first evaluation."},
    {&A::per_device_eval_batch_size, "per_device_eval_batch_size", Group::evaluation, at_least(1),
     "Examples per device in one forward pass of evaluation."},
    {&A::prediction_loss_only, "prediction_loss_only", Group::evaluation, any_value(),
     "Evaluation computes only the loss."},
    {&A::eval_on_start, "eval_on_start", Group::evaluation, any_value(),
     "Evaluate once before the first step."},
    {&A::eval_do_concat_batches, "eval_do_concat_batches", Group::evaluation, any_value(),
     "Join the outputs of all batches; otherwise they are kept batch by batch."},
    {&A::eval_use_gather_object, "eval_use_gather_object", Group::evaluation, any_value(),
     "Gather Python objects in evaluation. No effect here: outputs are tensors."},
    {&A::eval_accumulation_steps, "eval_accumulation_steps", Group::evaluation, at_least(1),
     "Number of batches after which outputs are moved to the CPU; when not set, at the end."},

    {&A::include_for_metrics, "include_for_metrics", Group::metrics, one_of(kMetricInputs),
     "What compute_metrics receives besides predictions and labels."},
    {&A::batch_eval_metrics, "batch_eval_metrics", Group::metrics, any_value(),
     "Call compute_metrics after every batch instead of keeping all outputs."},

    {&A::save_only_model, "save_only_model", Group::checkpoints, any_value(),
     "Checkpoints hold only the model; such a run cannot be resumed."},
    {&A::save_strategy, "save_strategy", Group::checkpoints, one_of(kSaveIntervals),
     "When to save a checkpoint; best: whenever the metric is the best so far."},
    {&A::save_steps, "save_steps", Group::checkpoints, at_least(0),
     "Steps between two checkpoints; a value below 1 is a share of all steps."},
    {&A::save_on_each_node, "save_on_each_node", Group::checkpoints, any_value(),
     "With several machines, save on each; not for a shared disk."},
    {&A::save_total_limit, "save_total_limit", Group::checkpoints, any_value(),
     "Number of checkpoints to keep; the newest and the best always stay."},
    {&A::enable_jit_checkpoint, "enable_jit_checkpoint", Group::checkpoints, any_value(),
     "On SIGTERM save a checkpoint and stop."},

    {&A::push_to_hub, "push_to_hub", Group::hub, any_value(),
     "Not supported: gradus does not use the Hub."},
    {&A::hub_token, "hub_token", Group::hub, any_value(),
     "Token for the Hub. Not used."},
    {&A::hub_private_repo, "hub_private_repo", Group::hub, any_value(),
     "Visibility on the Hub. Not used."},
    {&A::hub_model_id, "hub_model_id", Group::hub, any_value(),
     "Repository on the Hub. Not used."},
    {&A::hub_strategy, "hub_strategy", Group::hub, one_of(kHubStrategies),
     "What to push to the Hub. Not used."},
    {&A::hub_always_push, "hub_always_push", Group::hub, any_value(),
     "Push to the Hub without waiting. Not used."},
    {&A::hub_revision, "hub_revision", Group::hub, any_value(),
     "Branch or tag on the Hub. Not used."},

    {&A::load_best_model_at_end, "load_best_model_at_end", Group::best_model, any_value(),
     "After training, load the best checkpoint; eval_strategy and save_strategy must agree."},
    {&A::metric_for_best_model, "metric_for_best_model", Group::best_model, any_value(),
     "The metric that decides which checkpoint is best, with or without eval_; the loss when not "
     "set."},
    {&A::greater_is_better, "greater_is_better", Group::best_model, any_value(),
     "Whether a higher metric is better; when not set, unless its name ends in loss."},

    {&A::ignore_data_skip, "ignore_data_skip", Group::resuming, any_value(),
     "On resume, start the epoch's data from the beginning instead of where it stopped."},
    {&A::restore_callback_states_from_checkpoint, "restore_callback_states_from_checkpoint",
     Group::resuming, any_value(),
     "On resume, restore callbacks also from checkpoints of transformers."},

    {&A::full_determinism, "full_determinism", Group::reproducibility, any_value(),
     "Use only deterministic kernels; slower."},
    {&A::seed, "seed", Group::reproducibility, within(0, kMaxSeed),
     "Seed of all random numbers."},
    {&A::data_seed, "data_seed", Group::reproducibility, any_value(),
     "Seed of the data order; `seed` when not set."},

    {&A::use_cpu, "use_cpu", Group::hardware, any_value(),
     "Train on the CPU even if there is a GPU."},

    {&A::accelerator_config, "accelerator_config", Group::accelerate,
     holds(Shape::dictionary_or_path),
     "How batches are shared between processes: split_batches, dispatch_batches, even_batches, "
     "use_seedable_sampler, non_blocking, gradient_accumulation_kwargs."},
    {&A::parallelism_config, "parallelism_config", Group::accelerate,
     holds(Shape::dictionary).typed("dict | None"),
     "Tensor and context parallelism of Accelerate. Not supported."},

    {&A::dataloader_drop_last, "dataloader_drop_last", Group::dataloader, any_value(),
     "Drop the last batch of an epoch when it is not full."},
    {&A::dataloader_num_workers, "dataloader_num_workers", Group::dataloader, at_least(0),
     "Threads that prepare batches; 0 prepares them in the training thread."},
    {&A::dataloader_pin_memory, "dataloader_pin_memory", Group::dataloader, any_value(),
     "Keep batches in page-locked memory for faster copies to the GPU."},
    {&A::dataloader_persistent_workers, "dataloader_persistent_workers", Group::dataloader,
     any_value(),
     "Keep the workers between epochs."},
    {&A::dataloader_prefetch_factor, "dataloader_prefetch_factor", Group::dataloader, at_least(1),
     "Batches that each worker prepares in advance; needs dataloader_num_workers."},
    {&A::dataloader_multiprocessing_context, "dataloader_multiprocessing_context",
     Group::dataloader, one_of(kStartMethods),
     "How Python starts worker processes. No effect here: workers are threads."},
    {&A::dataloader_in_order, "dataloader_in_order", Group::dataloader, any_value(),
     "Return batches in order, whichever worker is ready first."},
    {&A::remove_unused_columns, "remove_unused_columns", Group::dataloader, any_value(),
     "Drop columns that the model does not take."},
    {&A::label_names, "label_names", Group::dataloader, any_value(),
     "Columns that are labels; the model's own when not set."},
    {&A::train_sampling_strategy, "train_sampling_strategy", Group::dataloader, one_of(kSamplings),
     "The order of training examples."},
    {&A::length_column_name, "length_column_name", Group::dataloader, any_value(),
     "Column with lengths for group_by_length and batch_rebalance."},

    {&A::ddp_find_unused_parameters, "ddp_find_unused_parameters", Group::ddp, any_value(),
     "Look for parameters without gradient in every step."},
    {&A::ddp_bucket_cap_mb, "ddp_bucket_cap_mb", Group::ddp, at_least(1),
     "Size of gradient buckets in MiB."},
    {&A::ddp_broadcast_buffers, "ddp_broadcast_buffers", Group::ddp, any_value(),
     "Send buffers from the first process to all before every forward pass."},
    {&A::ddp_static_graph, "ddp_static_graph", Group::ddp, any_value(),
     "The same parameters are used in every step."},
    {&A::ddp_backend, "ddp_backend", Group::ddp, one_of(kBackends),
     "How processes communicate: nccl on GPUs, gloo on CPUs."},
    {&A::ddp_timeout, "ddp_timeout", Group::ddp, at_least(1),
     "Seconds before a collective operation fails."},

    {&A::fsdp, "fsdp", Group::fsdp, any_value().boolean_as("true", ""),
     "Shard the model over processes: true or full_shard, shard_grad_op; with auto_wrap, offload."},
    {&A::fsdp_config, "fsdp_config", Group::fsdp, holds(Shape::dictionary_or_path),
     "Settings of fsdp and zero_stage, a dictionary or the path of a JSON file."},
    {&A::deepspeed, "deepspeed", Group::deepspeed, holds(Shape::dictionary_or_path),
     "DeepSpeed's configuration. Not supported."},

    {&A::debug, "debug", Group::debugging, any_value(),
     "Debug features: underflow_overflow, tpu_metrics_debug."},
    {&A::skip_memory_metrics, "skip_memory_metrics", Group::debugging, any_value(),
     "Do not measure memory; false adds memory figures to the metrics."},

    {&A::do_train, "do_train", Group::scripts, any_value(),
     "Train. `gradus train` implies it."},
    {&A::do_eval, "do_eval", Group::scripts, any_value(),
     "Evaluate on the validation data; on when eval_strategy is not no."},
    {&A::do_predict, "do_predict", Group::scripts, any_value(),
     "Predict on the test data."},
    {&A::resume_from_checkpoint, "resume_from_checkpoint", Group::scripts,
     any_value().boolean_as("true", ""),
     "Resume from a checkpoint: its folder, true (the newest in output_dir) or last (the newest "
     "complete one, or from the beginning)."},
    {&A::local_rank, "local_rank", Group::scripts, any_value(),
     "Set by old launchers; LOCAL_RANK of the environment is used instead."},

    {&A::num_threads, "num_threads", Group::gradus, at_least(1),
     "Threads for CPU kernels; all cores when not set. Data loader workers are "
     "additional.", Origin::gradus},
    {&A::overwrite_output_dir, "overwrite_output_dir", Group::gradus, any_value(),
     "Start a new run in an output_dir that holds checkpoints; the old run is "
     "removed.", Origin::gradus},
    {&A::eval_loss_weighting, "eval_loss_weighting", Group::gradus, one_of(kLossWeightings),
     "eval_loss is the mean over samples, as in transformers, or over tokens.", Origin::gradus},
    {&A::max_shard_size, "max_shard_size", Group::gradus, any_value(),
     "Weights above this size are split into several files, for example 500MB or "
     "2GiB.", Origin::gradus},
    {&A::save_failures_allowed, "save_failures_allowed", Group::gradus, at_least(1),
     "So many checkpoints in a row may fail to be written, for example on a full disk, before the "
     "run ends; the next save is tried each time.", Origin::gradus},
    {&A::cuda_graphs, "cuda_graphs", Group::gradus, one_of(kGraphModes),
     "Record steps on a GPU once per shape and replay them: auto does so for models and trainers "
     "of gradus, on for all.", Origin::gradus},
    {&A::bf16_mode, "bf16_mode", Group::gradus, one_of(kBf16Modes),
     "How bf16 computes: autocast over float32 weights, or bfloat16 weights with float32 master "
     "weights in the optimizer; auto is master on a GPU, autocast on a CPU.", Origin::gradus},
    {&A::zero_stage, "zero_stage", Group::gradus, within(0, 3),
     "What each of several processes keeps only its share of: 1: the optimizer's state, 2: "
     "gradients, too, 3: parameters, too; 0: nothing.", Origin::gradus},
    {&A::ddp_comm_hook, "ddp_comm_hook", Group::gradus, one_of(kCommHooks),
     "The format in which gradients travel between processes, as accelerate's comm_hook: no is "
     "their own.", Origin::gradus},
    {&A::elastic_order, "elastic_order", Group::gradus, any_value(),
     "per_device_train_batch_size is that of all processes together, and every number of them "
     "takes the same steps with the same rows.", Origin::gradus},
    {&A::spike_action, "spike_action", Group::gradus, one_of(kSpikeActions),
     "What to do when the loss of a step is not finite or far above the last ones: only say so "
     "(none), leave out the update (skip), or go back to a state kept in memory and leave out the "
     "step's batches (rollback).", Origin::gradus},
    {&A::spike_threshold, "spike_threshold", Group::gradus, above(0),
     "How many standard deviations above the median of the last 64 steps a loss is a spike.",
     Origin::gradus},
    {&A::log_histograms, "log_histograms", Group::gradus, at_least(0),
     "Log histograms of all weights and gradients every so many steps, for trackers that show "
     "them (TensorBoard); 0: never.", Origin::gradus},
    {&A::profile_steps, "profile_steps", Group::gradus, any_value(),
     "Write what these steps do on CPU and GPU, for example 11:13, to profile-11-13.json in "
     "output_dir, a file for Perfetto and chrome://tracing.", Origin::gradus},
    {&A::fp8, "fp8", Group::gradus, any_value(),
     "Multiply in 8-bit floating point in the linear layers of the blocks; needs bf16 and a GPU of "
     "compute capability 8.9 or above.", Origin::gradus},
    {&A::activation_memory_budget, "activation_memory_budget", Group::gradus, within(0, 1),
     "The share of the blocks' activations that may be kept, 0.5 for half: as many blocks as need "
     "be are computed again in the backward pass, with 0 all (as gradient_checkpointing), with 1 "
     "none.", Origin::gradus},
    {&A::cpu_matmul, "cpu_matmul", Group::gradus, one_of(kCpuMatmuls),
     "Who multiplies float32 matrices on a CPU: torch's BLAS, with Python's numbers to the last "
     "bit, or oneDNN, which rounds in another order and is twice as fast on some processors "
     "(gradus doctor measures both).", Origin::gradus},
};
// clang-format on

}  // namespace gradus::config
