// Which questions a model answers exactly, as the Flax example's evaluate.py counts it.
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <torch/utils.h>

#include "tasks/natural_questions_run.h"
#include "text/characters.h"

namespace gradus::tasks {
namespace {

namespace nq = gradus::natural_questions;

constexpr int64_t kShortTokens = 38, kLongTokens = 1024;  // most tokens of an answer

/// A question and the row that the model is given for it.
struct AskedQuestion {
  nq::Question question;
  Encoding encoding;
};

/// Scores of all questions of a batch, on the CPU.
torch::Tensor scores_of(const ModelOutput& output, const char* name) {
  return output[name].to(torch::kCPU, torch::kFloat).contiguous();
}

std::span<const float> row_of(const torch::Tensor& scores, int64_t row) {
  const auto size = size_t(scores.size(1));
  return std::span(scores.const_data_ptr<float>(), size_t(scores.numel()))
      .subspan(size_t(row) * size, size);
}

/// Asks questions in batches and counts.
class ExactMatch {
 public:
  explicit ExactMatch(const NaturalQuestionsRun& run) : run_(run) {}

  void ask(nq::Question question) {
    const EncodeOptions options{.max_length = run_.max_length,
                                .truncation = true,
                                .text_pair = question.context,
                                .padding = "max_length",
                                .ids_only = true};
    auto encoding = run_.tokenizer->encode(question.question, options);
    waiting_.push_back({std::move(question), std::move(encoding)});
    if (std::ssize(waiting_) >= run_.args.per_device_eval_batch_size) judge();
  }

  void judge() {
    if (waiting_.empty()) return;
    std::vector<torch::Tensor> ids, masks;
    for (const auto& each : waiting_) {
      ids.push_back(at::tensor(each.encoding.ids(), torch::kLong));
      masks.push_back(at::tensor(each.encoding.attention_mask(), torch::kLong));
    }
    const auto output = run_.model->forward(Batch{
        {"input_ids", at::stack(ids)},
        {"attention_mask", at::stack(masks)}}.to(run_.model->parameters().front().device()));
    const auto kinds = scores_of(output, "pooled_logits").argmax(-1);
    const auto starts = scores_of(output, "start_logits"), ends = scores_of(output, "end_logits");
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const auto row = int64_t(i);
      add(waiting_[i], nq::Kind(kinds[row].item<int64_t>()), row_of(starts, row),
          row_of(ends, row));
    }
    waiting_.clear();
  }

  const nlohmann::ordered_json& answers() const { return answers_; }
  Metrics metrics() const {
    if (answers_.empty()) return {{"exact_match_samples", 0.0}};
    return {{"exact_match", 100.0 * double(matched_) / double(answers_.size())},
            {"exact_match_samples", double(answers_.size())}};
  }

 private:
  void add(const AskedQuestion& asked, nq::Kind kind, std::span<const float> starts,
           std::span<const float> ends) {
    const auto& [question, encoding] = asked;
    auto answer = nq::kind_name(kind);
    bool is_match = std::vector{answer} == question.targets;
    if (kind == nq::Kind::short_answer || kind == nq::Kind::long_answer) {
      const auto most = kind == nq::Kind::short_answer ? kShortTokens : kLongTokens;
      const auto [start, end] = nq::best_span(starts, ends, most);
      const auto count = std::max<int64_t>(end - start + 1, 0);
      answer =
          run_.tokenizer->decode(std::span(encoding.ids()).subspan(size_t(start), size_t(count)));
      is_match = nq::matches(question.targets, answer);
    }
    matched_ += is_match ? 1 : 0;
    answers_.push_back({{"id", question.id},
                        {"question", question.question},
                        {"category", nq::kind_name(kind)},
                        {"output", answer},
                        {"targets", question.targets},
                        {"match", is_match}});
  }

  const NaturalQuestionsRun& run_;
  std::vector<AskedQuestion> waiting_;
  nlohmann::ordered_json answers_ = nlohmann::ordered_json::array();
  int64_t matched_ = 0;
};

/// The example's evaluation leaves out questions without an answer and long texts.
bool is_asked(const nq::Question& question, int64_t max_length) {
  const auto characters =
      text::code_points(question.question).size() + text::code_points(question.context).size();
  return question.category != "null" && int64_t(characters) < 4 * max_length;
}

}  // namespace

Metrics exact_match(const NaturalQuestionsRun& run, const std::filesystem::path& predictions) {
  const torch::NoGradGuard no_grad;
  const bool was_training = run.model->is_training();
  run.model->eval();
  ExactMatch match(run);
  for (int64_t i = 0; i < run.questions->size(); ++i) {
    nq::Question question(run.questions->get(i), run.where);
    if (is_asked(question, run.max_length)) match.ask(std::move(question));
  }
  match.judge();
  run.model->train(was_training);
  write_file_atomically(predictions, dump_json(match.answers(), 1) + "\n");
  return match.metrics();
}

}  // namespace gradus::tasks
