#include <fmt/format.h>
#include <gradus/config/gradient_checkpointing.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/schedulers.h>
#include <gradus/trackers/tracker.h>

#include <cmath>

#include "config/field_value.h"
#include "config/nested_options.h"
#include "config/profiled_steps.h"
#include "config/python_only.h"
#include "config/sharding.h"
#include "config/training_choices.h"

// The stages of transformers' TrainingArguments.__post_init__, in its order, each a function.
namespace gradus {
namespace {

using nlohmann::json;

[[noreturn]] void contradiction(const std::string& message, const std::string& advice) {
  throw Error("G-CONF-4", ErrorKind::usage, message, advice);
}

std::string shown(const StepsOrRatio& steps) {
  return steps.is_whole() ? std::to_string(static_cast<int64_t>(steps.value()))
                          : json_number(steps.value());
}

// ---- 1. defaults and forms

void parse_dictionary(json& field) {
  if (!field.is_string() || !field.get_ref<const std::string&>().starts_with('{')) return;
  field = parse_json(field.get<std::string>(), "the dictionary");
  config::convert_strings(field);
}

void normalize(TrainingArguments& args) {
  if (!args.output_dir) {
    args.output_dir = "trainer_output";
    log_info("No output directory given: using trainer_output. Set it with --output_dir.");
  }
  if (args.output_dir->empty())
    throw Error("G-CONF-3", ErrorKind::usage, "output_dir: must not be empty",
                "Name a folder, or . for this one.");
  for (auto* field : {&args.accelerator_config, &args.fsdp_config, &args.deepspeed,
                      &args.gradient_checkpointing_kwargs, &args.lr_scheduler_kwargs})
    parse_dictionary(*field);
  args.output_dir = expand_user(*args.output_dir).string();
  if (!args.disable_tqdm) args.disable_tqdm = log_level() > LogLevel::warning;
  if (args.resume_from_checkpoint &&
      (args.resume_from_checkpoint->empty() || *args.resume_from_checkpoint == "false"))
    args.resume_from_checkpoint.reset();
}

// ---- 2. words that choose

void split_debug(TrainingArguments& args) {
  std::vector<std::string> words;
  for (const auto& part : args.debug.words()) {
    size_t at = 0;
    while ((at = part.find_first_not_of(" \t\n", at)) != std::string::npos) {
      const auto end = std::min(part.find_first_of(" \t\n", at), part.size());
      words.push_back(part.substr(at, end - at));
      at = end;
    }
  }
  const Rule rule = one_of(config::kDebugOptions);
  config::check_field(&words,
                      {rule, "debug", "Debug features: underflow_overflow, tpu_metrics_debug."});
  args.debug = std::move(words);
}

// ---- 3. what follows from other options

void derive(TrainingArguments& args) {
  if (args.eval_strategy != "no") args.do_eval = true;
  if (args.eval_strategy == "steps" && (!args.eval_steps || *args.eval_steps == 0)) {
    if (args.logging_steps == 0)
      contradiction("eval_strategy is steps, but eval_steps and logging_steps are both 0",
                    "Set --eval_steps to a positive number.");
    log_info("eval_steps is not set: using logging_steps, " + shown(args.logging_steps) + ".");
    args.eval_steps = args.logging_steps;
  }
  const bool needs_metric =
      args.load_best_model_at_end || is_metric_driven_scheduler(args.lr_scheduler_type);
  if (needs_metric && !args.metric_for_best_model) args.metric_for_best_model = "loss";
  if (!args.greater_is_better && args.metric_for_best_model)
    args.greater_is_better = !args.metric_for_best_model->ends_with("loss");
  args.report_to = resolve_tracker_names(args.report_to.words());
}

// ---- 4. checks

void need_whole_steps(const char* name, StepsOrRatio& steps) {
  if (steps.value() <= 1) return;
  if (steps.value() != std::floor(steps.value()))
    throw Error("G-CONF-3", ErrorKind::usage,
                fmt::format("{}: must be an integer when above 1, received {}", name, shown(steps)),
                "Give a whole number of steps, or a share of all steps below 1.");
  steps = static_cast<int64_t>(steps.value());
}

void check_best_model(const TrainingArguments& args) {
  if (!args.load_best_model_at_end || args.save_strategy == "best") return;
  if (args.eval_strategy != args.save_strategy)
    contradiction(fmt::format("load_best_model_at_end needs the same eval_strategy and "
                              "save_strategy, received {} and {}",
                              args.eval_strategy, args.save_strategy),
                  "Make them equal, or use --save_strategy best.");
  if (args.eval_strategy != "steps") return;
  const double save = args.save_steps.value(), eval = args.eval_steps->value();
  if (std::fmod(save, eval) == 0) return;
  const bool ratios = args.save_steps.is_ratio() && args.eval_steps->is_ratio();
  if (!ratios && (args.save_steps.is_ratio() || args.eval_steps->is_ratio()))
    contradiction(fmt::format("load_best_model_at_end needs save_steps and eval_steps of one kind, "
                              "received {} and {}",
                              shown(args.save_steps), shown(*args.eval_steps)),
                  "Give both as numbers of steps or both as shares below 1.");
  if (ratios && std::fmod(save * 1e6, eval * 1e6) == 0)
    return;  // rounding of shares does not count
  contradiction(fmt::format("load_best_model_at_end needs save_steps to be a multiple of "
                            "eval_steps, received {} and {}",
                            shown(args.save_steps), shown(*args.eval_steps)),
                "Every checkpoint needs an evaluation at its step.");
}

void check_fp8(const TrainingArguments& args) {
  if (!args.fp8) return;
  if (!args.bf16 || args.bf16_mode == "autocast")
    contradiction(fmt::format("fp8 needs bfloat16 weights, received bf16={} and bf16_mode={}",
                              args.bf16, args.bf16_mode),
                  "Add --bf16, and leave --bf16_mode out.");
  if (config::sharding_of(args).stage == 3)
    contradiction("fp8 with parameters that are shared out among processes (zero_stage 3)",
                  "Leave one of them out; --zero_stage 2 goes with fp8.");
}

void check_memory_budget(const TrainingArguments& args) {
  if (!args.activation_memory_budget) return;
  const auto how = GradientCheckpointing::from_kwargs(args.gradient_checkpointing_kwargs);
  if (how.every_n_layers == 1) return;
  contradiction(fmt::format("activation_memory_budget is {}, and gradient_checkpointing_kwargs has "
                            "every_n_layers {}: both choose the blocks that are computed again",
                            *args.activation_memory_budget, how.every_n_layers),
                "Leave one of them out.");
}

void validate(TrainingArguments& args) {
  if (args.logging_strategy == "steps" && args.logging_steps == 0)
    contradiction("logging_strategy is steps, but logging_steps is 0",
                  "Set --logging_steps to a positive number, or --logging_strategy no.");
  if (args.logging_strategy == "steps") need_whole_steps("logging_steps", args.logging_steps);
  if (args.eval_strategy == "steps") need_whole_steps("eval_steps", *args.eval_steps);
  if (args.save_strategy == "steps") need_whole_steps("save_steps", args.save_steps);
  check_best_model(args);
  if (args.fp16 && args.bf16) contradiction("fp16 and bf16 are both on", "Choose one.");
  if (args.fp16_full_eval && args.bf16_full_eval)
    contradiction("fp16_full_eval and bf16_full_eval are both on", "Choose one.");
  if (is_metric_driven_scheduler(args.lr_scheduler_type) && args.eval_strategy == "no")
    contradiction(
        fmt::format("lr_scheduler_type {} follows the evaluation metric, but eval_strategy is no",
                    args.lr_scheduler_type),
        "Set --eval_strategy steps or epoch.");
  if (args.dataloader_num_workers == 0 && args.dataloader_prefetch_factor)
    contradiction(fmt::format("dataloader_prefetch_factor is {}, but dataloader_num_workers is 0",
                              *args.dataloader_prefetch_factor),
                  "Only workers prepare batches ahead: set --dataloader_num_workers.");
  if (args.elastic_order && !args.average_tokens_across_devices)
    contradiction(
        "elastic_order with average_tokens_across_devices false: losses would depend on "
        "the number of processes",
        "Leave one of them out.");
  if (args.ddp_comm_hook != "no" && (args.zero_stage != 0 || args.fsdp.value_or("") != ""))
    contradiction(fmt::format("ddp_comm_hook is {}, but gradients of a sharded model travel as "
                              "they are",
                              args.ddp_comm_hook),
                  "Leave it out, or --fsdp and --zero_stage.");
  check_fp8(args);
  check_memory_budget(args);
  args.max_shard_bytes();
  config::profiled_steps(args.profile_steps);
}

}  // namespace

TrainingArguments TrainingArguments::resolved() const {
  TrainingArguments args = *this;
  OptionSet options;
  options.add(args, training_options());
  options.check();
  normalize(args);
  split_debug(args);
  derive(args);
  validate(args);
  if (args.torch_compile_mode || args.torch_compile_backend) args.torch_compile = true;
  if (args.torch_compile && !args.torch_compile_backend) args.torch_compile_backend = "inductor";
  config::resolve_nested_options(args);
  config::resolve_sharding(args);
  if (args.use_cpu) args.dataloader_pin_memory = false;
  config::answer_python_only(args);
  return args;
}

}  // namespace gradus
