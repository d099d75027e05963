// preference_tool JOBS.json ANSWERS.json: answers sft_test.py, preference_test.py,
// trl_processes_test.py and trl_moves_test.py.
//
// A job is {"trainer": "sft", "reward", "dpo" or "kto", "folder", "train", "eval", "args"}, files
// of rows, and may have "lora", "ref" (folder of a reference), "adapter" (folder of one to go on
// with), "resume" (a checkpoint) and "zero_stage". The answer is {"log_history", "trainable",
// "gradients"}: those of the first step, by name; null where no process has them whole.
#include <gradus/data/load_dataset.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/dpo.h>
#include <gradus/trainers/kto.h>
#include <gradus/trainers/reward.h>
#include <gradus/trainers/sft.h>

#include <set>

#include "answer_jobs.h"

namespace {

using nlohmann::json;

json gradients_of(gradus::Model& model) {
  auto gradients = json::object();
  std::set<const void*> seen;  // tied tensors have two names
  for (const auto& item : model.named_module().named_parameters()) {
    if (!item.value().grad().defined()) continue;
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    const auto flat = item.value().grad().flatten().contiguous();
    gradients[item.key()] =
        std::vector<float>(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return gradients;
}

template <class TrainerClass, class Options>
json trained(const json& job, gradus::ModelTask task) {
  const auto folder = job.at("folder").get<std::string>();
  Options options;
  gradus::PretrainedOptions load;
  if (task == gradus::ModelTask::sequence_classification) load.config = {{"num_labels", 1}};
  const auto base = gradus::model_from_pretrained(task, folder, load);
  options.model = base;
  if (job.contains("adapter"))
    options.model = gradus::PeftModel::from_pretrained(base, job.at("adapter").get<std::string>(),
                                                       "default", /*is_trainable=*/true);
  options.args = Options::Arguments::from_json(job.at("args"));
  options.args.zero_stage = job.value("zero_stage", int64_t{0});
  options.train_dataset = gradus::load_dataset(job.at("train").get<std::string>());
  options.eval_dataset =
      gradus::DatasetRef(gradus::load_dataset(job.at("eval").get<std::string>()));
  options.processing_class = gradus::Tokenizer::from_pretrained(folder);
  if (job.contains("lora")) options.peft_config = gradus::LoraConfig::from_json(job.at("lora"));
  if constexpr (requires { options.ref_model; })
    if (job.contains("ref"))
      options.ref_model =
          gradus::AutoModelForCausalLM::from_pretrained(job.at("ref").get<std::string>());
  TrainerClass trainer(std::move(options));
  json gradients;
  const bool is_sharded = job.contains("zero_stage");
  trainer.on(gradus::Event::pre_optimizer_step, [&](const auto& at, auto&) {
    if (gradients.is_null() && !is_sharded) gradients = gradients_of(*at.model);
  });
  if (job.contains("resume"))
    trainer.train(gradus::Resume::from(job.at("resume").get<std::string>()));
  else
    trainer.train();
  return {{"log_history", trainer.state().log_history},
          {"trainable", trainer.num_trainable_parameters()},
          {"gradients", gradients}};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gradus;
  return gradus::testing::answer_jobs(argc, argv, "preference_tool", [](const json& job) -> json {
    const auto& trainer = job.at("trainer");
    if (trainer == "reward")
      return trained<RewardTrainer, RewardTrainerOptions>(job, ModelTask::sequence_classification);
    if (trainer == "sft") return trained<SFTTrainer, SFTTrainerOptions>(job, ModelTask::causal_lm);
    if (trainer == "dpo") return trained<DPOTrainer, DPOTrainerOptions>(job, ModelTask::causal_lm);
    return trained<KTOTrainer, KTOTrainerOptions>(job, ModelTask::causal_lm);
  });
}
