#pragma once

#include <gradus/tasks/task.h>

namespace gradus {

// One function per task, each in the file of its name.
std::unique_ptr<Task> make_causal_lm();
std::unique_ptr<Task> make_distillation();
std::unique_ptr<Task> make_causal_lm_distillation();
std::unique_ptr<Task> make_masked_lm_distillation();
std::unique_ptr<Task> make_dpo();
std::unique_ptr<Task> make_grpo();
std::unique_ptr<Task> make_image_classification();
std::unique_ptr<Task> make_kto();
std::unique_ptr<Task> make_masked_lm();
std::unique_ptr<Task> make_natural_questions();
std::unique_ptr<Task> make_question_answering();
std::unique_ptr<Task> make_reward();
std::unique_ptr<Task> make_seq2seq_question_answering();
std::unique_ptr<Task> make_rloo();
std::unique_ptr<Task> make_speech_recognition_ctc();
std::unique_ptr<Task> make_summarization();
std::unique_ptr<Task> make_sft();
std::unique_ptr<Task> make_text_classification();
std::unique_ptr<Task> make_token_classification();
std::unique_ptr<Task> make_translation();
std::unique_ptr<Task> make_wav2vec2_pretraining();

}  // namespace gradus
