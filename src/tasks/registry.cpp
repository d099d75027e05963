#include "tasks/registry.h"

#include <fmt/format.h>
#include <gradus/core/nearest.h>
#include <gradus/trainers/registry.h>

#include "core/registry.h"

namespace gradus {
namespace {

struct TaskEntry {
  std::string name;
  TaskMaker make = nullptr;
};

Registry<TaskEntry>& tasks_table() {
  static Registry<TaskEntry> table("register_task",
                                   {{"causal-lm", make_causal_lm},
                                    {"masked-lm", make_masked_lm},
                                    {"text-classification", make_text_classification},
                                    {"token-classification", make_token_classification},
                                    {"image-classification", make_image_classification},
                                    {"distillation", make_distillation},
                                    {"causal-lm-distillation", make_causal_lm_distillation},
                                    {"masked-lm-distillation", make_masked_lm_distillation},
                                    {"question-answering", make_question_answering},
                                    {"seq2seq-question-answering", make_seq2seq_question_answering},
                                    {"summarization", make_summarization},
                                    {"translation", make_translation},
                                    {"speech-recognition-ctc", make_speech_recognition_ctc},
                                    {"wav2vec2-pretraining", make_wav2vec2_pretraining},
                                    {"sft", make_sft},
                                    {"reward", make_reward},
                                    {"dpo", make_dpo},
                                    {"kto", make_kto},
                                    {"grpo", make_grpo},
                                    {"rloo", make_rloo},
                                    {"natural-questions", make_natural_questions}});
  return table;
}

}  // namespace

TrainerArguments& Task::arguments() {
  if (!arguments_) arguments_ = find_trainer(trainer()).make_arguments();
  return *arguments_;
}

void register_task(const std::string& name, TaskMaker make) {
  tasks_table().add({name, std::move(make)});
}

std::vector<std::string> task_names() { return tasks_table().names(); }

std::unique_ptr<Task> make_task(const std::string& name) {
  if (const auto entry = tasks_table().find(name)) return entry->make();
  const auto names = task_names();
  const auto near = did_you_mean(name, names);
  throw Error("G-TASK-1", ErrorKind::usage,
              name.empty() ? "no task was given" : "there is no task '" + name + "'",
              fmt::format("{}{}Set --task to {}.", near, near.empty() ? "" : " ", join_or(names)));
}

}  // namespace gradus
