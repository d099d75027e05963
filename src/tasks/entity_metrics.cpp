#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/tasks/metrics.h>

#include <limits>
#include <set>

namespace gradus::metrics {
namespace {

struct Tag {
  std::string_view prefix;  // one character
  std::string_view type;
};

// "B-PER" is (B, PER), "O" (O, _), "PER" (P, ER): what seqeval reads.
Tag split_tag(std::string_view text) {
  size_t first = text.empty() ? 0 : 1;
  while (first < text.size() && (static_cast<unsigned char>(text[first]) & 0xC0) == 0x80) ++first;
  auto type = text.substr(first);
  if (const auto dash = type.find('-'); dash != std::string_view::npos)
    type = type.substr(dash + 1);
  return {text.substr(0, first), type.empty() ? std::string_view("_") : type};
}

bool any_of(std::string_view prefix, std::string_view letters) {
  return prefix.size() == 1 && letters.find(prefix[0]) != std::string_view::npos;
}

bool ends_between(const Tag& before, const Tag& now) {
  if (any_of(before.prefix, "ES")) return true;
  if (any_of(before.prefix, "BI") && any_of(now.prefix, "BSO")) return true;
  return !any_of(before.prefix, "O.") && before.type != now.type;
}

bool begins_between(const Tag& before, const Tag& now) {
  if (any_of(now.prefix, "BS")) return true;
  if (any_of(before.prefix, "ESO") && any_of(now.prefix, "EI")) return true;
  return !any_of(now.prefix, "O.") && before.type != now.type;
}

// The entities of all rows by type, with the row's number.
using Found = std::map<std::string, std::set<std::tuple<size_t, int64_t, int64_t>>>;

Found collect(const TagRows& rows) {
  Found found;
  for (size_t row = 0; row < rows.size(); ++row)
    for (auto& entity : entities_of(rows[row]))
      found[entity.type].insert({row, entity.first, entity.last});
  return found;
}

PrecisionRecallF1 from_counts(size_t right, size_t predicted, size_t real) {
  const auto part = [](double a, double b) { return b == 0 ? 0.0 : a / b; };
  const double precision = part(double(right), double(predicted)),
               recall = part(double(right), double(real));
  return {precision, recall, part(2 * precision * recall, precision + recall)};
}

double tag_accuracy(const TagRows& references, const TagRows& predictions) {
  int64_t right = 0, all = 0;
  for (size_t row = 0; row < references.size(); ++row)
    for (size_t i = 0; i < references[row].size(); ++i, ++all)
      right += references[row][i] == predictions[row][i];
  return all == 0 ? std::numeric_limits<double>::quiet_NaN() : double(right) / double(all);
}

void check_rows(const TagRows& references, const TagRows& predictions) {
  bool same = references.size() == predictions.size();
  for (size_t row = 0; same && row < references.size(); ++row)
    same = references[row].size() == predictions[row].size();
  if (!same)
    throw Error("G-TASK-6", ErrorKind::usage,
                fmt::format("entity scores received {} rows of references and {} of predictions: "
                            "expected the same number of rows and of tags in each",
                            references.size(), predictions.size()),
                "Give one predicted tag for each reference tag.");
}

}  // namespace

std::vector<Entity> entities_of(std::span<const std::string> tags) {
  std::vector<Entity> entities;
  Tag before{"O", ""};
  int64_t begin = 0;
  for (size_t i = 0; i <= tags.size(); ++i) {
    const auto now = split_tag(i < tags.size() ? std::string_view(tags[i]) : std::string_view("O"));
    if (ends_between(before, now))
      entities.push_back({std::string(before.type), begin, int64_t(i) - 1});
    if (begins_between(before, now)) begin = int64_t(i);
    before = now;
  }
  return entities;
}

EntityScores entity_scores(const TagRows& references, const TagRows& predictions) {
  check_rows(references, predictions);
  auto real = collect(references), predicted = collect(predictions);
  for (const auto& [type, entities] : predicted) real[type];
  EntityScores scores;
  size_t all_right = 0, all_predicted = 0, all_real = 0;
  for (const auto& [type, wanted] : real) {
    const auto& found = predicted[type];
    size_t right = 0;
    for (const auto& entity : wanted) right += found.count(entity);
    auto& of_type = scores.types[type];
    static_cast<PrecisionRecallF1&>(of_type) = from_counts(right, found.size(), wanted.size());
    of_type.number = int64_t(wanted.size());
    all_right += right;
    all_predicted += found.size();
    all_real += wanted.size();
  }
  scores.overall = from_counts(all_right, all_predicted, all_real);
  scores.accuracy = tag_accuracy(references, predictions);
  return scores;
}

}  // namespace gradus::metrics
