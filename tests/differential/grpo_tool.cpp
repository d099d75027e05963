// grpo_tool JOBS.json ANSWERS.json: answers grpo_test.py.
//
// A job is {"trainer", "folder", "train", "eval", "args"}: "grpo", "rloo" or "distillation", the
// model's folder and files of rows. It may have "lora", "given" (a file with one object
// {"prompt_ids", "completion_ids"} for each prompt and place in its group), "places" (how many of a
// group's places belong to one process), "teacher" (a folder), "rewards" (the number of functions),
// "judge" (the folder of a reward model) and "resume" (a checkpoint). The answer is {"log_history",
// "trainable", "gradients"}: those of the first step, and "saved", the weights at the end.
#include <gradus/data/load_dataset.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/on_policy_distillation.h>
#include <gradus/trainers/rloo.h>

#include <set>

#include "answer_jobs.h"

using nlohmann::json;

namespace {

/// The sum of the completion's tokens, in ten steps: a number that a script can compute, too.
std::vector<double> sum_of_tokens(const gradus::RewardInputs& in) {
  std::vector<double> rewards;
  for (const auto& ids : in.completion_ids) {
    int64_t sum = 0;
    for (const auto id : ids) sum += id;
    rewards.push_back(double(sum % 11) / 10);
  }
  return rewards;
}

/// Applies to rows with a level, which not all have.
std::vector<double> level(const gradus::RewardInputs& in) {
  std::vector<double> rewards;
  for (size_t i = 0; i < in.completions.size(); ++i) {
    const auto& value = in.column("level")[i];
    rewards.push_back(value.is_null() ? std::nan("")
                                      : value.number() + double(in.completion_ids[i].size()));
  }
  in.log_metric("longest", double(std::ranges::max(in.completion_ids, {}, [](const auto& ids) {
                                    return ids.size();
                                  }).size()));
  return rewards;
}

/// Completions of a file: row r of the data set has one list for each place of its group.
gradus::RolloutFunction given_completions(const std::string& file, size_t places) {
  const auto table = gradus::read_json(file);
  return [table, places](const std::vector<gradus::Example>& rows, gradus::Trainer& trainer) {
    const auto first = size_t(trainer.args().process_index()) * places;
    gradus::Rollouts made;
    std::map<std::string, size_t> seen;
    for (const auto& row : rows) {
      const auto prompt = row["prompt"].str();
      const auto& entry = table.at(prompt);
      const auto place = (first + seen[prompt]++) % entry.at("completion_ids").size();
      made.prompt_ids.push_back(entry.at("prompt_ids"));
      made.completion_ids.push_back(entry.at("completion_ids").at(place));
    }
    return made;
  };
}

template <class Options>
Options options_of(const json& job) {
  const auto folder = job.at("folder").get<std::string>();
  Options options;
  options.model = gradus::AutoModelForCausalLM::from_pretrained(folder);
  options.args = decltype(options.args)::from_json(job.at("args"));
  options.train_dataset = gradus::load_dataset(job.at("train").get<std::string>());
  options.eval_dataset =
      gradus::DatasetRef(gradus::load_dataset(job.at("eval").get<std::string>()));
  options.processing_class = gradus::Tokenizer::from_pretrained(folder);
  if (job.contains("lora")) options.peft_config = gradus::LoraConfig::from_json(job.at("lora"));
  if (job.contains("given"))
    options.rollout_func =
        given_completions(job.at("given").get<std::string>(), job.value("places", size_t{0}));
  return options;
}

template <class Options>
Options with_rewards(Options options, const json& job) {
  options.reward_funcs = {{"sum_of_tokens", sum_of_tokens}};
  if (job.value("rewards", 1) > 1) options.reward_funcs.emplace_back("level", level);
  if (job.contains("judge")) {
    const auto folder = job.at("judge").get<std::string>();
    const std::shared_ptr<gradus::Model> judge =
        gradus::AutoModelForSequenceClassification::from_pretrained(folder);
    options.reward_funcs.insert(options.reward_funcs.begin(), {"judge", judge});
    options.reward_processing_classes = {gradus::Tokenizer::from_pretrained(folder)};
    options.reward_processing_classes.resize(options.reward_funcs.size());
  }
  return options;
}

json answer_of(gradus::Trainer& trainer, const json& job) {
  json gradients = json::object();
  trainer.on(gradus::Event::pre_optimizer_step,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               if (at.state.global_step > 0) return;
               std::set<const void*> seen;  // tied tensors have two names
               for (const auto& item : at.model->named_module().named_parameters()) {
                 const auto& gradient = item.value().grad();
                 if (!gradient.defined()) continue;
                 if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
                 const auto all = gradient.to(torch::kDouble).flatten().contiguous();
                 gradients[item.key()] = std::vector<double>(all.data_ptr<double>(),
                                                             all.data_ptr<double>() + all.numel());
               }
             });
  trainer.train(job.contains("resume") ? gradus::Resume::from(job.at("resume").get<std::string>())
                                       : gradus::Resume::none());
  return {{"log_history", trainer.state().log_history},
          {"trainable", trainer.num_trainable_parameters()},
          {"gradients", gradients}};
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "grpo_tool", [](const json& job) -> json {
    const auto kind = job.at("trainer").get<std::string>();
    if (kind == "grpo") {
      gradus::GRPOTrainer trainer(with_rewards(options_of<gradus::GRPOTrainerOptions>(job), job));
      return answer_of(trainer, job);
    }
    if (kind == "rloo") {
      gradus::RLOOTrainer trainer(with_rewards(options_of<gradus::RLOOTrainerOptions>(job), job));
      return answer_of(trainer, job);
    }
    auto options = options_of<gradus::OnPolicyDistillationTrainerOptions>(job);
    options.teacher_model =
        gradus::AutoModelForCausalLM::from_pretrained(job.at("teacher").get<std::string>());
    gradus::OnPolicyDistillationTrainer trainer(std::move(options));
    return answer_of(trainer, job);
  });
}
