// Answers from the logits of their start and end.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/trainers/question_answering.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "text/characters.h"

namespace gradus {
namespace {

using Offsets = std::pair<int64_t, int64_t>;

// An answer under consideration. Numbers are float32, as the logits are.
struct Candidate {
  Offsets offsets = {0, 0};
  float start_logit = 0, end_logit = 0;
  std::string text = {};
  bool is_made_up = false;  // there was none: transformers' "empty"

  float score() const { return start_logit + end_logit; }
};

std::string id_text(const Value& id) {
  return id.is_int() ? std::to_string(id.integer()) : id.str();
}

// Where each token of a feature lies in the context; unset for tokens outside of it.
std::vector<std::optional<Offsets>> offsets_of(const Value& column) {
  std::vector<std::optional<Offsets>> all;
  if (column.is_ints()) {
    const auto& flat = column.ints();
    for (size_t i = 0; i + 1 < flat.size(); i += 2)
      all.push_back(flat[i] < 0 ? std::nullopt : std::optional(Offsets(flat[i], flat[i + 1])));
    return all;
  }
  for (const auto& pair : column.json())
    all.push_back(pair.is_array() && pair.size() >= 2
                      ? std::optional(Offsets(pair[0].get<int64_t>(), pair[1].get<int64_t>()))
                      : std::nullopt);
  return all;
}

// Places of the largest logits, largest first.
std::vector<int64_t> largest(const float* logits, int64_t count, int64_t most) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logits[a] < logits[b]; });
  std::reverse(order.begin(), order.end());
  if (count > most) order.resize(static_cast<size_t>(most));
  return order;
}

// numpy's sum of up to 128 numbers: eight sums side by side, then the rest.
template <class T>
T numpy_sum(const std::vector<T>& values) {
  if (values.size() < 8) return std::accumulate(values.begin(), values.end(), T(0));
  T parts[8];
  std::copy_n(values.begin(), 8, parts);
  size_t i = 8;
  for (; i + 8 <= values.size(); i += 8)
    for (size_t k = 0; k < 8; ++k) parts[k] += values[i + k];
  T sum = ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
          ((parts[4] + parts[5]) + (parts[6] + parts[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

template <class T>
std::vector<double> softmax_of_scores(const std::vector<Candidate>& answers) {
  std::vector<T> scores;
  for (const auto& each : answers) scores.push_back(T(each.score()));
  const T largest_score = *std::max_element(scores.begin(), scores.end());
  for (auto& score : scores) score = std::exp(score - largest_score);
  const T sum = numpy_sum(scores);
  std::vector<double> probabilities;
  for (const auto score : scores) probabilities.push_back(double(score / sum));
  return probabilities;
}

// As numpy does: a made-up answer has Python's numbers, which makes all of them float64.
std::vector<double> probabilities_of(const std::vector<Candidate>& answers) {
  return answers.front().is_made_up ? softmax_of_scores<double>(answers)
                                    : softmax_of_scores<float>(answers);
}

nlohmann::ordered_json json_of(const std::vector<Candidate>& answers) {
  const auto probabilities = probabilities_of(answers);
  auto list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    nlohmann::ordered_json one;
    if (answers[i].is_made_up) one["text"] = answers[i].text;
    one["start_logit"] = double(answers[i].start_logit);
    one["end_logit"] = double(answers[i].end_logit);
    one["text"] = answers[i].text;
    one["probability"] = probabilities[i];
    list.push_back(std::move(one));
  }
  return list;
}

// Chooses the answers to questions one after the other, and keeps what goes to the files.
class AnswerFinder {
 public:
  AnswerFinder(const Dataset& features, const TensorList& predictions,
               const PostProcessOptions& options)
      : features_(features), options_(options) {
    if (predictions.size() != 2 || predictions[0].dim() != 2 ||
        predictions[0].sizes() != predictions[1].sizes() ||
        predictions[0].size(0) != features.size())
      throw Error("G-TASK-16", ErrorKind::usage,
                  fmt::format("received {} predictions of {} rows for {} features: expected start "
                              "and end logits of each feature",
                              predictions.size(), predictions.empty() ? 0 : predictions[0].size(0),
                              features.size()),
                  "Give the outputs of a question answering model for these features.");
    start_ = predictions[0].to(torch::kCPU, torch::kFloat).contiguous();
    end_ = predictions[1].to(torch::kCPU, torch::kFloat).contiguous();
  }

  std::string answer(const std::string& id, const std::string& context,
                     const std::vector<int64_t>& features) {
    std::vector<Candidate> answers;
    std::optional<Candidate> none;
    for (const auto feature : features) consider(feature, answers, none);
    if (!options_.version_2_with_negative) none.reset();
    if (none) answers.push_back(*none);
    std::stable_sort(answers.begin(), answers.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score() > b.score(); });
    if (answers.size() > size_t(options_.n_best_size)) answers.resize(size_t(options_.n_best_size));
    if (none && std::none_of(answers.begin(), answers.end(),
                             [](const Candidate& each) { return each.offsets == Offsets(0, 0); }))
      answers.push_back(*none);
    const auto letters = text::code_points(context);
    for (auto& each : answers) {
      const auto size = int64_t(letters.size());
      const auto begin = std::min(each.offsets.first, size),
                 end = std::min(each.offsets.second, size);
      if (begin < end)
        each.text =
            text::utf8_of(std::u32string_view(letters).substr(size_t(begin), size_t(end - begin)));
    }
    if (answers.empty() || (answers.size() == 1 && answers.front().text.empty()))
      answers.insert(answers.begin(), {.text = "empty", .is_made_up = true});
    nbest[id] = json_of(answers);
    const auto best = choose(id, answers, none);
    chosen[id] = best;
    return best;
  }

  nlohmann::ordered_json chosen = nlohmann::ordered_json::object(),
                         nbest = nlohmann::ordered_json::object(),
                         null_odds = nlohmann::ordered_json::object();

 private:
  void consider(int64_t feature, std::vector<Candidate>& answers, std::optional<Candidate>& none) {
    const auto width = start_.size(1);
    const float* starts = start_.const_data_ptr<float>() + feature * width;
    const float* ends = end_.const_data_ptr<float>() + feature * width;
    const Candidate null{.start_logit = starts[0], .end_logit = ends[0]};
    if (!none || none->score() > null.score()) none = null;
    const auto offsets = offsets_of(features_.get(feature).at("offset_mapping"));
    const auto is_inside = [&](int64_t token) {
      return token < int64_t(offsets.size()) && offsets[size_t(token)];
    };
    const auto last = largest(ends, width, options_.n_best_size);
    for (const auto start : largest(starts, width, options_.n_best_size))
      for (const auto end : last) {
        if (!is_inside(start) || !is_inside(end)) continue;
        if (end < start || end - start + 1 > options_.max_answer_length) continue;
        answers.push_back({.offsets = {offsets[size_t(start)]->first, offsets[size_t(end)]->second},
                           .start_logit = starts[start],
                           .end_logit = ends[end]});
      }
  }

  std::string choose(const std::string& id, const std::vector<Candidate>& answers,
                     const std::optional<Candidate>& none) {
    if (!options_.version_2_with_negative) return answers.front().text;
    const auto best = std::find_if(answers.begin(), answers.end(),
                                   [](const Candidate& each) { return !each.text.empty(); });
    if (best == answers.end()) return "";
    const float difference = (none ? none->score() : 0.0f) - best->start_logit - best->end_logit;
    null_odds[id] = double(difference);
    return double(difference) > options_.null_score_diff_threshold ? "" : best->text;
  }

  const Dataset& features_;
  const PostProcessOptions& options_;
  torch::Tensor start_, end_;
};

}  // namespace

std::vector<std::string> postprocess_qa_predictions(const Dataset& examples,
                                                    const Dataset& features,
                                                    const TensorList& predictions,
                                                    const PostProcessOptions& options) {
  AnswerFinder finder(features, predictions, options);
  std::map<std::string, std::vector<int64_t>> features_of;
  for (int64_t i = 0; i < features.size(); ++i)
    features_of[id_text(features.get(i).at("example_id"))].push_back(i);
  std::vector<std::string> answers;
  for (int64_t i = 0; i < examples.size(); ++i) {
    const auto example = examples.get(i);
    const auto id = id_text(example.at("id"));
    answers.push_back(finder.answer(id, example.at("context").str(), features_of[id]));
  }
  if (!options.output_dir) return answers;
  const auto write = [&](const std::string& name, const nlohmann::ordered_json& content) {
    write_file_atomically(
        *options.output_dir / (options.prefix ? *options.prefix + "_" + name : name),
        dump_json(content, 4) + "\n");
  };
  write("predictions.json", finder.chosen);
  write("nbest_predictions.json", finder.nbest);
  if (options.version_2_with_negative) write("null_odds.json", finder.null_odds);
  return answers;
}

}  // namespace gradus
