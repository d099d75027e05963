// A small model learns from a large one: the data, flags and metrics of text-classification,
// causal-lm or masked-lm, with a teacher.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/trainers/distillation.h>
#include <gradus/trainers/registry.h>

#include "tasks/class_labels.h"
#include "tasks/model_source.h"
#include "tasks/registry.h"

namespace gradus {
namespace tasks {
namespace {

struct TeacherFlags {
  std::optional<std::string> teacher_name_or_path = std::nullopt;
};
constexpr OptionRow<TeacherFlags> kTeacherRows[] = {
    {&TeacherFlags::teacher_name_or_path, "teacher_name_or_path", Group::model, any_value(),
     "The folder of the model to learn from.", Origin::gradus},
};

[[noreturn]] void refuse_teacher(ErrorKind kind, const std::string& message,
                                 const std::string& advice) {
  throw Error("G-TASK-17", kind, message, advice);
}

class Distillation : public Task {
 public:
  Distillation(std::string name, std::unique_ptr<Task> student, ModelTask head)
      : name_(std::move(name)), student_(std::move(student)), head_(head) {}

  std::string name() const override { return name_; }
  std::string trainer() const override { return "DistillationTrainer"; }

  void add_options(OptionSet& options) override {
    student_->add_options(options);
    options.add(flags_, std::span<const OptionRow<TeacherFlags>>(kTeacherRows));
  }

  void check(const TrainingArguments& args) const override {
    if (!flags_.teacher_name_or_path)
      refuse_teacher(ErrorKind::usage, "there is no teacher: --teacher_name_or_path is not set",
                     "Name the folder of a model that was trained on such data.");
    if (!std::filesystem::is_directory(expand_user(*flags_.teacher_name_or_path)))
      refuse_teacher(ErrorKind::usage, "there is no folder " + *flags_.teacher_name_or_path,
                     "Name the folder of the teacher (config.json and model.safetensors).");
    student_->check(args);
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    auto prepared = student_->prepare(args);
    const auto teacher = load_teacher(prepared);
    prepared.make_trainer = [own = arguments().as<DistillationArguments>(),
                             teacher](TrainerOptions options) {
      auto all = with_arguments<DistillationTrainerOptions>(options, own);
      all.teacher = teacher;
      return std::make_unique<DistillationTrainer>(std::move(all));
    };
    return prepared;
  }

 private:
  // Teacher and student must mean the same by a class and by a token.
  std::shared_ptr<PreTrainedModel> load_teacher(const PreparedTask& prepared) const {
    const ModelFlags folder{.model_name_or_path = flags_.teacher_name_or_path};
    const auto teacher = load_model(head_, folder, {}, nullptr);
    if (head_ == ModelTask::sequence_classification) check_classes(*teacher, prepared);
    const auto* tokens = dynamic_cast<const Tokenizer*>(prepared.trainer.processing_class.get());
    const auto tokenizer = load_tokenizer(folder);
    if (tokens != nullptr && tokenizer && tokens->vocab() != tokenizer->vocab())
      refuse_teacher(ErrorKind::model, "teacher and student have different tokenizers",
                     "Choose a student with the teacher's tokenizer.");
    return teacher;
  }

  static void check_classes(const PreTrainedModel& teacher, const PreparedTask& prepared) {
    const auto of_teacher = configured_names(teacher.config()),
               of_student = configured_names(prepared.trainer.model->config());
    const bool named = are_own_names(of_teacher) && are_own_names(of_student);
    if (of_teacher.size() != of_student.size() || (named && of_teacher != of_student))
      refuse_teacher(ErrorKind::model,
                     fmt::format("the teacher knows the classes {}, the data has {}",
                                 fmt::join(of_teacher, ", "), fmt::join(of_student, ", ")),
                     "Train the teacher on data with the same labels.");
  }

  std::string name_;
  std::unique_ptr<Task> student_;
  ModelTask head_;
  TeacherFlags flags_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_distillation() {
  return std::make_unique<tasks::Distillation>("distillation", make_text_classification(),
                                               ModelTask::sequence_classification);
}

std::unique_ptr<Task> make_causal_lm_distillation() {
  return std::make_unique<tasks::Distillation>("causal-lm-distillation", make_causal_lm(),
                                               ModelTask::causal_lm);
}

std::unique_ptr<Task> make_masked_lm_distillation() {
  return std::make_unique<tasks::Distillation>("masked-lm-distillation", make_masked_lm(),
                                               ModelTask::masked_lm);
}

}  // namespace gradus
