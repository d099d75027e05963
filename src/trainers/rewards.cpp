#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/trainers/rewards.h>

#include <charconv>
#include <cmath>
#include <set>

#include "core/registry.h"
#include "text/regular_expression.h"

namespace gradus {
namespace {

[[noreturn]] void refuse_reward(const std::string& name, const std::string& what,
                                const std::string& advice) {
  throw Error("G-RWD-3", ErrorKind::usage, fmt::format("the reward {}: {}", name, what), advice);
}

std::vector<double> numbers_of(const std::string& name, const std::string& text) {
  std::vector<double> numbers;
  size_t from = 0;
  while (from < text.size()) {
    const auto end = std::min(text.find(',', from), text.size());
    double number = 0;
    const auto [stop, error] = std::from_chars(text.data() + from, text.data() + end, number);
    if (error != std::errc() || stop != text.data() + end)
      refuse_reward(name, fmt::format("'{}' is not a number", text.substr(from, end - from)),
                    fmt::format("Give numbers with commas between them, as in {}:3,1.", name));
    numbers.push_back(number);
    from = end + 1;
  }
  return numbers;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string text_of_value(const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_double()) return fmt::format("{}", value.number());
  return "";
}

/// A reward that looks at one completion at a time.
template <class Score>
RewardFunction for_each_completion(Score score) {
  return [score](const RewardInputs& in) {
    std::vector<double> rewards;
    for (size_t i = 0; i < in.completions.size(); ++i) rewards.push_back(score(in, i));
    return rewards;
  };
}

Reward exact_match(const std::string& text) {
  const auto column = text.empty() ? std::string("answer") : text;
  return {"exact_match", [column](const RewardInputs& in) {
            const auto& answers = in.column(column);
            std::vector<double> rewards;
            for (size_t i = 0; i < in.completions.size(); ++i)
              rewards.push_back(trimmed(in.completions[i]) == trimmed(text_of_value(answers[i])));
            return rewards;
          }};
}

Reward regular_expression(const std::string& text) {
  if (text.empty())
    refuse_reward("regex", "there is no expression", "Give one: --reward_funcs 'regex:^[0-9]+$'.");
  try {
    return {"regex", for_each_completion([pattern = text::RegularExpression(text)](
                                             const RewardInputs& in, size_t i) {
              return double(pattern.matches(in.completions[i]));
            })};
  } catch (const Error& error) {
    refuse_reward("regex", error.message(),
                  "Regular expressions are those of Rust's regex crate, with look-around and back "
                  "references: nearly Python's.");
  }
}

Reward length(const std::string& text) {
  const auto numbers = numbers_of("length", text);
  if (numbers.size() != 1 || numbers[0] < 1)
    refuse_reward("length", "it needs the wanted number of tokens",
                  "Give it: --reward_funcs length:20.");
  return {"length", for_each_completion([wanted = numbers[0]](const RewardInputs& in, size_t i) {
            const auto distance = std::abs(double(in.completion_ids[i].size()) - wanted);
            return 1 - std::min(1.0, distance / wanted);
          })};
}

/// One `<think>…</think>` at the beginning.
Reward think_format(const std::string&) {
  return {"think_format_reward", for_each_completion([](const RewardInputs& in, size_t i) {
            const auto& text = in.completions[i];
            if (!text.starts_with("<think>")) return 0.0;
            const auto again = text.find("<think>", 1);
            return double(again == std::string::npos && text.find("</think>") != std::string::npos);
          })};
}

Reward soft_overlong_punishment(const std::string& text) {
  const char* name = "soft_overlong_punishment_reward";
  auto numbers = numbers_of(name, text);
  if (numbers.empty()) numbers = {1280, 256};  // as in trl's scripts
  if (numbers.size() != 2 || numbers[1] < 0 || numbers[0] < numbers[1])
    refuse_reward(name, fmt::format("it needs two lengths, received '{}'", text),
                  "Give the longest length and over how many tokens before it the punishment "
                  "grows: get_soft_overlong_punishment:1280,256.");
  return {name, for_each_completion(
                    [most = numbers[0], grows = numbers[1]](const RewardInputs& in, size_t i) {
                      const auto tokens = double(in.completion_ids[i].size());
                      if (tokens <= most - grows) return 0.0;
                      return tokens <= most ? (most - grows - tokens) / grows : -1.0;
                    })};
}

Reward repetition_penalty(const std::string& text) {
  const char* name = "repetition_penalty_reward";
  auto numbers = numbers_of(name, text);
  if (numbers.empty()) numbers = {3, -1};
  if (numbers.size() != 2 || numbers[0] < 1 || numbers[1] > 0)
    refuse_reward(name, fmt::format("it needs a length and a penalty, received '{}'", text),
                  "Give the number of tokens and a penalty that is not above 0: "
                  "get_repetition_penalty_reward:3,-1.");
  return {name, for_each_completion(
                    [n = size_t(numbers[0]), worst = numbers[1]](const RewardInputs& in, size_t i) {
                      const auto& ids = in.completion_ids[i];
                      if (ids.size() < n) return 0.0;
                      std::set<std::vector<int64_t>> different;
                      const auto all = ids.size() - n + 1;
                      for (size_t k = 0; k < all; ++k)
                        different.emplace(ids.begin() + std::ptrdiff_t(k),
                                          ids.begin() + std::ptrdiff_t(k + n));
                      const auto repeated = 1 - double(different.size()) / double(all);
                      return repeated == 0 ? 0.0 : repeated * worst;
                    })};
}

Reward of_math_verify(const std::string&) {
  refuse_reward("accuracy_reward", "it needs Python's math-verify, which gradus does not have",
                "Use exact_match, or a process of your own that calls it with --reward_command.");
}

struct RewardEntry {
  std::string name;
  RewardMaker make = nullptr;
};

Registry<RewardEntry>& reward_table() {
  static Registry<RewardEntry> table("register_reward",
                                     {{"exact_match", exact_match},
                                      {"regex", regular_expression},
                                      {"length", length},
                                      {"think_format_reward", think_format},
                                      {"get_soft_overlong_punishment", soft_overlong_punishment},
                                      {"get_repetition_penalty_reward", repetition_penalty},
                                      {"accuracy_reward", of_math_verify},
                                      {"reasoning_accuracy_reward", of_math_verify}});
  return table;
}

}  // namespace

const std::vector<Value>& RewardInputs::column(const std::string& name) const {
  const auto found = columns.find(name);
  if (found != columns.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [each, values] : columns) names.push_back(each);
  throw Error(
      "G-RWD-1", ErrorKind::data,
      fmt::format(
          "a reward reads the column {}, which the data set does not have; it has "
          "{}",
          name, names.empty() ? "none but the prompt" : fmt::format("{}", fmt::join(names, ", "))),
      names.empty() ? "Add the column to the rows." : did_you_mean(name, names));
}

void RewardInputs::log_extra(const std::string& column, std::vector<Value> values) const {
  auto& all = notes_->extra[column];
  all.insert(all.end(), values.begin(), values.end());
}

void RewardInputs::log_metric(const std::string& name, double value) const {
  notes_->metrics[name].push_back(value);
}

void register_reward(const std::string& name, RewardMaker make) {
  check_registration("register_reward", name, bool(make));
  reward_table().add({name, std::move(make)});
}

std::vector<std::string> reward_names() { return reward_table().names(); }

Reward find_reward(const std::string& text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  if (const auto entry = reward_table().find(name))
    return entry->make(colon == std::string::npos ? "" : text.substr(colon + 1));
  const auto names = reward_names();
  throw Error("G-RWD-3", ErrorKind::usage, fmt::format("there is no reward '{}'", name),
              fmt::format("{} Known are {}; register_reward adds one in C++, --reward_command asks "
                          "a process of yours.",
                          did_you_mean(name, names), join_or(names)));
}

}  // namespace gradus
