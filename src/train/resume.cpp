#include "train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>

#include <set>

namespace gradus {
namespace fs = std::filesystem;
namespace {

std::string how_to_go_on(const fs::path& run_dir) {
  if (const auto newest = newest_complete_checkpoint(run_dir))
    return fmt::format("The newest complete checkpoint is {0}. Use it with --resume_from_checkpoint {0},\nor --resume_from_checkpoint last to let gradus pick it.", newest->path.string());
  return fmt::format("There is no complete checkpoint in {}. Start anew without --resume_from_checkpoint.", run_dir.string());
}

fs::path checked(const fs::path& checkpoint) {
  if (!fs::is_directory(checkpoint))
    throw Error("G-CKPT-1", ErrorKind::checkpoint, "can't find a valid checkpoint at " + checkpoint.string() + ": there is no such folder", how_to_go_on(checkpoint.parent_path()));
  const auto report = verify_checkpoint(checkpoint, Verify::full);
  if (!report.complete())
    throw Error("G-CKPT-3", ErrorKind::checkpoint, fmt::format("cannot resume from {}: {}", checkpoint.string(), fmt::join(report.problems, "; ")), how_to_go_on(checkpoint.parent_path()));
  return checkpoint;
}

}  // namespace

Resume Resume::parse(const std::string& text) {
  auto word = text;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (word.empty() || word == "false" || word == "no") return none();
  if (word == "true" || word == "yes") return newest();
  if (word == "last") return last();
  return from(text);
}

fs::path resolve_resume(const Resume& resume, const fs::path& run_dir) {
  remove_unfinished(run_dir);
  switch (resume.kind()) {
    case Resume::Kind::none: return {};
    case Resume::Kind::path: return checked(resume.path());
    case Resume::Kind::newest: {
      const auto newest = newest_checkpoint(run_dir);
      if (!newest)
        throw Error("G-CKPT-1", ErrorKind::checkpoint, "no valid checkpoint found in output directory (" + run_dir.string() + ")",
                    "Start without --resume_from_checkpoint, or use --resume_from_checkpoint last, which starts anew when there is none.");
      return checked(newest->path);
    }
    case Resume::Kind::last: break;
  }
  const auto complete = newest_complete_checkpoint(run_dir);
  const auto newest = newest_checkpoint(run_dir);
  if (newest && (!complete || complete->step < newest->step))
    log_warning(fmt::format("{} is not complete ({}) and is passed over.", newest->path.string(), fmt::join(verify_checkpoint(newest->path, Verify::full).problems, "; ")));
  return complete ? complete->path : fs::path();
}

void warn_about_changed_options(const TrainingArguments& args, const TrainerState& saved, const fs::path& checkpoint) {
  const auto warn = [](const std::string& name, const nlohmann::json& now, const nlohmann::json& then, const char* file) {
    log_warning(fmt::format("{}: {} (from args) != {} (from {}); the new value is used.", name, dump_json(now), dump_json(then), file));
  };
  const auto current = nlohmann::json(args.to_dict());
  const auto file = checkpoint / "training_args.json";
  if (fs::exists(file)) {
    // Where a run lives and how it is watched may change freely.
    static const std::set<std::string> kFree = {"output_dir", "resume_from_checkpoint", "do_train", "do_eval", "do_predict", "overwrite_output_dir", "run_name", "log_level",
                                                "log_level_replica", "disable_tqdm", "report_to", "num_threads", "dataloader_num_workers", "local_rank", "save_total_limit"};
    const auto former = read_json(file);
    for (const auto& [name, value] : current.items())
      if (!kFree.contains(name) && former.contains(name) && former[name] != value) warn(name, value, former[name], "training_args.json");
    return;
  }
  const auto compare = [&](const char* name, const StepsOrRatio& now, int64_t then) {
    if (!now.is_ratio() && now.steps(0) != then) warn(name, now.steps(0), then, "trainer_state.json");
  };
  compare("logging_steps", args.logging_steps, saved.logging_steps);
  if (args.eval_steps) compare("eval_steps", *args.eval_steps, saved.eval_steps);
  compare("save_steps", args.save_steps, saved.save_steps);
  if (saved.train_batch_size && *saved.train_batch_size != args.train_batch_size())
    warn("per_device_train_batch_size", args.train_batch_size(), *saved.train_batch_size, "trainer_state.json");
}

}  // namespace gradus
