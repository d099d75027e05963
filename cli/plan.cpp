// plan and --dry_run: what a run will need, before it starts.
#include "plan.h"

#include <fmt/format.h>
#include <gradus/core/byte_size.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/data_loader.h>
#include <gradus/device/runtime.h>
#include <gradus/tasks/memory_plan.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/plan.h>
#include <gradus/trainers/registry.h>

#include <chrono>
#include <numeric>
#include <set>

#include "cli.h"
#include "device/nvml.h"
#include "reference.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr OptionRow<PlanFlags> kPlanRows[] = {
    {&PlanFlags::gpu_memory, "gpu_memory", Group::program, any_value(),
     "Plan for a card with this much memory, 80GB say; by default for the one that is here.",
     Origin::gradus},
    {&PlanFlags::measure, "measure", Group::program, any_value(),
     "Make some steps and measure time, memory and power; by default where there is a GPU.",
     Origin::gradus},
};

constexpr int64_t kMeasuredSteps = 12;
constexpr size_t kCountedSteps = 5;  // the last ones

/// Ends a run that was only to be looked at.
struct OnlyLooked {};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What was found out about a run.
struct Found {
  TrainingPlan plan;
  PlannedStep step;
  torch::Device device = torch::kCPU;
  double saved_weights = 0;  // bytes of the model's file; of an adapter where one is trained
  std::vector<double> step_seconds = {};
  double watts = 0;
  int64_t peak = 0;  // bytes on the device
};

/// The tokens of a row, as the model's blocks see them; 0 where the batch does not say. Packed rows
/// follow each other in one; positions tell them apart from a batch that is not full.
int64_t tokens_in(const Batch& batch, const torch::Tensor* input, const json& config,
                  int64_t rows) {
  if (input == nullptr) return 0;  // completions that are not made yet
  if (input->dim() == 2 && input->is_floating_point()) return 1;  // samples of sound
  if (input->dim() == 2) {
    const bool is_packed = input->size(0) == 1 && batch.find("position_ids") != nullptr;
    return is_packed ? (input->numel() + rows - 1) / rows : input->size(1);
  }
  const auto patch = config.is_object() ? config.find("patch_size") : config.end();
  if (input->dim() != 4 || patch == config.end() || !patch->is_number_integer()) return 1;
  const auto side = patch->get<int64_t>();
  return side > 0 ? (input->size(2) / side) * (input->size(3) / side) + 1 : 1;
}

/// Looks at model, data and steps.
class PlanCallback : public TrainerCallback {
 public:
  PlanCallback(const TrainingArguments& wanted, bool makes_steps, bool for_a_card)
      : wanted_(wanted), makes_steps_(makes_steps), for_a_card_(for_a_card) {}

  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext& at) override {
    found.plan = plan_training(wanted_, *at.train_dataloader, wanted_.train_batch_size());
    const auto first = at.train_dataloader->iterate(0).next();
    const auto* input = first ? first->find(at.model->main_input_name()) : nullptr;
    const auto* labels = first ? first->find("labels") : nullptr;
    // Frozen weights may still wait in host memory.
    for (const auto& parameter : at.model->parameters())
      if (found.device.is_cpu()) found.device = parameter.device();
    const auto tokens =
        first ? tokens_in(*first, input, at.model->config(), wanted_.train_batch_size()) : 0;
    found.step = PlannedStep::of(*at.model, wanted_, tokens, for_a_card_ || found.device.is_cuda());
    found.step.target_tokens = labels != nullptr && labels->dim() == 2 ? labels->size(1) : 1;
    if (input != nullptr && input->dim() > 0)
      found.step.sequences = std::max<int64_t>(input->size(0) / wanted_.train_batch_size(), 1);
    std::set<const void*> counted;  // tied weights once
    const auto saved = at.model->saved_weights();
    for (const auto& item : saved.tensors)
      if (counted.insert(item.value().const_data_ptr()).second)
        found.saved_weights += double(item.value().nbytes());
    if (!makes_steps_) throw OnlyLooked();
    device::reset_peak_memory(found.device);
    last_ = seconds_now();
  }
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext& at) override {
    if (!at.logs.contains("loss")) return;  // each one has waited for the device
    const double now = seconds_now();
    found.step_seconds.push_back(now - last_);
    last_ = now;
    if (const auto use = device::gpu_use(found.device.is_cuda() ? found.device.index() : 0))
      found.watts = std::max(found.watts, use->watts);
    found.peak = device::memory_use(found.device).peak;
  }

  Found found;

 private:
  TrainingArguments wanted_;
  bool makes_steps_;
  bool for_a_card_;
  double last_ = 0;
};

/// A folder that is gone afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    auto name = (fs::temp_directory_path() / "gradus-plan-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error("G-IO-2", ErrorKind::io,
                  "cannot make a folder in " + fs::temp_directory_path().string());
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Found look_at_run(Task& task, const TrainingArguments& wanted, int64_t steps, bool for_a_card) {
  const TemporaryFolder folder;
  auto args = wanted;
  args.output_dir = folder.path().string();
  args.save_strategy = args.eval_strategy = "no";
  args.load_best_model_at_end = false;
  args.resume_from_checkpoint.reset();
  args.report_to = "none";
  args.disable_tqdm = true;
  args.logging_strategy = "steps";
  args.logging_steps = 1;
  if (steps > 0) args.max_steps = steps;
  task.arguments().set_common(args);
  task.check(args);
  device::seed_all(args.seed);
  auto prepared = task.prepare(args);
  if (prepared.run)
    throw Error("G-TASK-18", ErrorKind::usage,
                "plan and --dry_run look at runs of the Trainer; " + task.name() + " has none",
                "Make a short run in their place, with --max_steps 5.");
  prepared.trainer.args = args;
  const auto callback = std::make_shared<PlanCallback>(wanted, steps > 0, for_a_card);
  prepared.trainer.callbacks.push_back(callback);
  const auto trainer =
      prepared.make_trainer
          ? prepared.make_trainer(std::move(prepared.trainer))
          : find_trainer(task.trainer()).make(std::move(prepared.trainer), task.arguments());
  trainer->pop_callback("PrinterCallback");
  try {
    trainer->train();
  } catch (const OnlyLooked&) {
  }
  return callback->found;
}

double step_time(const Found& found) {
  auto last = found.step_seconds;
  if (last.size() > kCountedSteps) last.erase(last.begin(), last.end() - kCountedSteps);
  if (last.empty()) return 0;
  std::sort(last.begin(), last.end());
  return last[last.size() / 2];
}

std::string in_hours(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

json terms_as_json(const MemoryTerms& terms) {
  return {{"weights", terms.weights},
          {"masters", terms.masters},
          {"optimizer", terms.optimizer},
          {"gradients", terms.gradients},
          {"activations", terms.activations},
          {"loss", terms.loss},
          {"other", terms.other},
          {"total", terms.total()}};
}

// How often something happens in a run.
int64_t times_in_run(const std::string& strategy, const StepsOrRatio& every,
                     const TrainingPlan& plan) {
  if (strategy == "epoch") return plan.num_train_epochs;
  if (strategy != "steps") return 0;
  const auto steps = std::max<int64_t>(every.steps(plan.max_steps), 1);
  return plan.max_steps / steps + (plan.max_steps % steps == 0 ? 0 : 1);
}

json describe_run(const TrainingArguments& args, const Found& found) {
  const auto& plan = found.plan;
  const double weights = found.saved_weights;
  const double state = optimizer_state_bytes(found.step.optim) * double(found.step.trainable);
  const double checkpoint = weights + (args.save_only_model ? 0.0 : state);
  const auto saves = times_in_run(args.save_strategy, args.save_steps, plan);
  const auto kept = args.save_total_limit ? std::min(saves, *args.save_total_limit) : saves;
  return {{"rows", plan.num_examples},
          {"epochs", plan.num_train_epochs},
          {"steps", plan.max_steps},
          {"rows_per_step", plan.total_train_batch_size},
          {"tokens_per_row", found.step.tokens},
          {"parameters", found.step.parameters},
          {"trainable_parameters", found.step.trainable},
          {"device", found.device.str()},
          {"logs", times_in_run(args.logging_strategy, args.logging_steps, plan)},
          {"evaluations",
           times_in_run(args.eval_strategy, args.eval_steps.value_or(args.logging_steps), plan)},
          {"checkpoints", saves},
          {"checkpoint_bytes", checkpoint},
          {"disk_bytes", checkpoint * double(kept) + weights}};
}

// The memory to plan for; none when nobody knows.
std::optional<double> memory_to_plan_for(const PlanFlags& flags, const Found& found) {
  if (flags.gpu_memory) {
    const auto bytes = parse_byte_size(*flags.gpu_memory);
    if (!bytes)
      throw Error("G-CONF-3", ErrorKind::usage,
                  "--gpu_memory is no size: '" + *flags.gpu_memory + "'", "Write 80GB or 40GiB.");
    return double(*bytes);
  }
  if (!found.device.is_cuda()) return std::nullopt;
  const auto use = device::gpu_use(found.device.index());
  return use ? std::optional(double(use->memory_total)) : std::nullopt;
}

void add_memory(json& document, const Found& found, const std::optional<double>& memory) {
  if (memory) document["memory_of_card"] = *memory;
  if (!knows_activations(found.step.config) || found.step.tokens == 0) return;
  const auto terms = plan_memory(found.step);
  document["memory"] = terms_as_json(terms);
  if (!memory) return;
  document["fits"] = terms.total() <= *memory;
  document["largest_batch"] = largest_batch(found.step, *memory);
  auto advice = json::array();
  for (const auto& each : memory_advice(found.step, *memory))
    advice.push_back({{"flag", each.flag}, {"total", each.total}, {"cost", each.cost}});
  document["advice"] = advice;
}

// What a trainer holds beside the model and its step.
std::string not_counted(const std::string& trainer) {
  if (trainer == "DPOTrainer" || trainer == "KTOTrainer") return "a reference policy";
  return trainer == "DistillationTrainer" ? "the teacher" : "";
}

void add_measured(json& document, const Found& found) {
  if (found.step_seconds.empty()) return;
  const double step = step_time(found), whole = step * double(found.plan.max_steps);
  document["measured"] = {{"step_seconds", step}, {"run_seconds", whole}};
  auto& measured = document["measured"];
  if (found.peak > 0) measured["peak_bytes"] = found.peak;
  if (found.watts > 0) {
    measured["watts"] = found.watts;
    measured["run_kilowatt_hours"] = found.watts * whole / 3.6e6;
  }
}

std::string run_as_text(const json& run) {
  const auto tokens = run["tokens_per_row"].get<int64_t>();
  return fmt::format(
      "{} rows, {} a step{}; {} steps in {} passes on {}\n"
      "{} parameters, {} of them trained\n"
      "{} logs, {} evaluations, {} checkpoints of about {}: {} on disk at most\n",
      run["rows"].get<int64_t>(), run["rows_per_step"].get<int64_t>(),
      tokens > 1 ? fmt::format(", {} tokens a row", tokens) : "", run["steps"].get<int64_t>(),
      run["epochs"].get<int64_t>(), run["device"].get<std::string>(),
      run["parameters"].get<int64_t>(), run["trainable_parameters"].get<int64_t>(),
      run["logs"].get<int64_t>(), run["evaluations"].get<int64_t>(),
      run["checkpoints"].get<int64_t>(), format_byte_size(run["checkpoint_bytes"]),
      format_byte_size(run["disk_bytes"]));
}

std::string memory_as_text(const json& document) {
  if (!document.contains("memory"))
    return fmt::format("The activations of this run are not known beforehand{}.\n",
                       document.contains("measured")        ? ""
                       : document["run"]["device"] == "cpu" ? "; on a GPU --measure measures them"
                                                            : "; --measure measures them");
  std::string text = "memory of a step:\n";
  for (const char* term :
       {"weights", "masters", "optimizer", "gradients", "activations", "loss", "other", "total"})
    if (const double bytes = document["memory"][term]; bytes > 0)
      text += fmt::format("  {:<12} {:>10}\n", term, format_byte_size(bytes));
  if (document.contains("not_counted"))
    text += "  Not counted: " + document["not_counted"].get<std::string>() + ".\n";
  if (!document.contains("fits")) return text;
  const double memory = document["memory_of_card"];
  text += fmt::format(
      "{} of {} ({:.0f} %); the largest batch that fits has {} rows\n",
      document["fits"].get<bool>() ? "It fits: this is" : "It does not fit: this is",
      format_byte_size(memory), 100 * document["memory"]["total"].get<double>() / memory,
      document["largest_batch"].get<int64_t>());
  for (const auto& each : document["advice"])
    text += fmt::format("  with {}: {} ({})\n", each["flag"].get<std::string>(),
                        format_byte_size(each["total"]), each["cost"].get<std::string>());
  return text;
}

std::string measured_as_text(const json& document) {
  if (!document.contains("measured")) return "";
  const auto& measured = document["measured"];
  auto text =
      fmt::format("measured: {:.4g} ms a step, {} for the run\n",
                  1000 * measured["step_seconds"].get<double>(), in_hours(measured["run_seconds"]));
  if (measured.contains("peak_bytes"))
    text += fmt::format("  peak of memory {}\n",
                        format_byte_size(measured["peak_bytes"].get<double>()));
  if (measured.contains("watts"))
    text += fmt::format("  {:.0f} W, {:.3g} kWh for the run\n", measured["watts"].get<double>(),
                        measured["run_kilowatt_hours"].get<double>());
  return text;
}

}  // namespace

void PlanFlags::add_to(OptionSet& set) {
  set.add(*this, std::span<const OptionRow<PlanFlags>>(kPlanRows));
}

std::vector<Flag> plan_flags() {
  auto flags = training_flags();
  for (auto& flag : flags_of(kPlanRows)) flags.push_back(std::move(flag));
  return flags;
}

int plan_run(Task& task, const TrainingArguments& args, const PlanRequest& request) {
  if (!args.do_train)
    throw Error("G-CLI-4", ErrorKind::usage,
                "plan and --dry_run look at training, and --do_train is false",
                "Use them with gradus train, or leave --dry_run out.");
  if (request.is_dry_run) check_run_start(args);
  device::load_cuda();
  const bool has_gpu = !args.use_cpu && device::gpu_count() > 0;
  const bool measures = request.is_dry_run || request.flags.measure.value_or(has_gpu);
  const auto found = look_at_run(task, args,
                                 request.is_dry_run ? 1
                                 : measures         ? kMeasuredSteps
                                                    : 0,
                                 request.flags.gpu_memory.has_value() && !args.use_cpu);
  json document = {{"run", describe_run(args, found)}};
  add_memory(document, found, memory_to_plan_for(request.flags, found));
  if (const auto more = not_counted(task.trainer()); !more.empty() && document.contains("memory"))
    document["not_counted"] = more;
  add_measured(document, found);
  if (request.is_dry_run) document["dry_run"] = true;
  if (args.process_index() != 0) return 0;  // of several, one speaks
  if (request.json) {
    print_line(dump_json(document, 2));
    return 0;
  }
  print_text(run_as_text(document["run"]) + memory_as_text(document) + measured_as_text(document) +
             (request.is_dry_run ? "One step was made; nothing was kept.\n" : ""));
  return 0;
}

}  // namespace gradus::cli
