// sft_tool JOBS.json ANSWERS.json: answers sft_test.py.
//
// A job is {"folder", "train", "eval", "args"}, files of rows, and may have "lora". The answer is
// {"log_history", "trainable"}.
#include <gradus/data/load_dataset.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/sft.h>

#include "answer_jobs.h"

using nlohmann::json;

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "sft_tool", [](const json& job) -> json {
    const auto folder = job.at("folder").get<std::string>();
    gradus::SFTTrainerOptions options;
    options.model = gradus::AutoModelForCausalLM::from_pretrained(folder);
    options.args = gradus::SFTConfig::from_json(job.at("args"));
    options.train_dataset = gradus::load_dataset(job.at("train").get<std::string>());
    options.eval_dataset =
        gradus::DatasetRef(gradus::load_dataset(job.at("eval").get<std::string>()));
    options.processing_class = gradus::Tokenizer::from_pretrained(folder);
    if (job.contains("lora")) options.peft_config = gradus::LoraConfig::from_json(job.at("lora"));
    gradus::SFTTrainer trainer(std::move(options));
    trainer.train();
    return {{"log_history", trainer.state().log_history},
            {"trainable", trainer.num_trainable_parameters()}};
  });
}
