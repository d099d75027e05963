// How a generation batch is made, scored and cut into the batches of steps.
#include <ATen/ops/cat.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gradus/core/error.h>

#include <cmath>
#include <numeric>
#include <string_view>

#include "core/parsed_json.h"
#include "trainers/advantages.h"
#include "trainers/nan_statistics.h"
#include "trainers/rollout_parts.h"
#include "trainers/row_reader.h"

namespace gradus {

using torch::Tensor;

namespace {

std::vector<Value> as_cells(const Tensor& numbers) {
  const auto here = numbers.detach().to(torch::kDouble).cpu().contiguous();
  std::vector<Value> cells;
  for (int64_t i = 0; i < here.numel(); ++i) cells.emplace_back(here.const_data_ptr<double>()[i]);
  return cells;
}

/// The means of the numbers that reward functions have logged, in all processes; not every process
/// has every name.
std::map<std::string, double> logged_means(const std::map<std::string, std::vector<double>>& logged,
                                           ProcessGroup* group) {
  auto own = nlohmann::json::object();
  for (const auto& [name, values] : logged)
    own[name] = {std::accumulate(values.begin(), values.end(), 0.0), values.size()};
  std::map<std::string, std::pair<double, double>> totals;
  const auto add = [&](const nlohmann::json& theirs) {
    for (const auto& [name, total] : theirs.items()) {
      // JSON has no NaN: it was written as null.
      totals[name].first += total[0].is_null() ? std::nan("") : total[0].get<double>();
      totals[name].second += total[1].get<double>();
    }
  };
  if (group != nullptr)
    for (const auto& text : group->gather_bytes(own.dump())) add(strict_json(text));
  else
    add(own);
  std::map<std::string, double> means;
  for (const auto& [name, total] : totals) means[name] = total.first / total.second;
  return means;
}

/// Rewards take texts or conversations, not both.
void check_prompts_alike(const std::vector<Example>& rows, const std::vector<int64_t>& places) {
  const auto form = [](const Example& row) {
    return std::string_view(is_message_list(row.find("prompt"), "role") ? "a list of messages"
                                                                        : "a text");
  };
  for (size_t i = 1; i < rows.size(); ++i)
    if (const auto first = form(rows[0]), other = form(rows[i]); first != other)
      throw Error("G-TRL-2", ErrorKind::data,
                  fmt::format("the data set: the prompt of row {} is {}, that of row {} is {}",
                              places[0], first, places[i], other),
                  "Give all prompts the same form.");
}

}  // namespace

Batch RolloutTrainer::make_batch(const Batch& loaded, const DatasetRef& source, bool training) {
  auto& r = *rolling_;
  const auto numbers = loaded[kRowNumber].to(torch::kCPU).to(torch::kLong).contiguous();
  const std::vector<int64_t> places(numbers.data_ptr<int64_t>(),
                                    numbers.data_ptr<int64_t>() + numbers.numel());
  auto rows = source.map_style()->get_many(places);
  check_prompts_alike(rows, places);
  if (r.settings.only_prompts)
    for (auto& row : rows)
      if (const auto* prompt = row.find("prompt")) row = {{"prompt", *prompt}};
  auto rollouts = r.rollout_func
                      ? r.rollout_func(rows, *this)
                      : r.sampler.sample(rows, places, policy_of(model(), r.settings.trainer));
  r.sampler.check(rollouts, rows.size());

  MetricBatch metrics;
  std::vector<double> prompt_lengths, lengths, truncated;
  for (size_t i = 0; i < rows.size(); ++i) {
    prompt_lengths.push_back(double(rollouts.prompt_ids[i].size()));
    lengths.push_back(double(rollouts.completion_ids[i].size()));
    truncated.push_back(r.sampler.is_truncated(rollouts.completion_ids[i]));
  }
  const auto all = gathered(
      at::stack({torch::tensor(lengths, torch::kFloat), torch::tensor(truncated, torch::kFloat),
                 torch::tensor(prompt_lengths, torch::kFloat)},
                1));
  const auto length = all.select(1, 0), is_cut = all.select(1, 1);
  auto ended = length.masked_select(is_cut.eq(0));
  if (ended.numel() == 0) ended = torch::zeros({1});
  const auto tokens = (all.select(1, 2) + length).sum(torch::kDouble);
  if (training) state().num_input_tokens_seen += tokens.item<int64_t>();
  r.memory->has_new_tokens[size_t(training)] = true;
  note(metrics, "completions/mean_length", length.mean());
  note(metrics, "completions/min_length", length.min());
  note(metrics, "completions/max_length", length.max());
  note(metrics, "completions/clipped_ratio", is_cut.mean());
  note(metrics, "completions/mean_terminated_length", ended.mean());
  note(metrics, "completions/min_terminated_length", ended.min());
  note(metrics, "completions/max_terminated_length", ended.max());

  Scored scored{.rows = rows,
                .rollouts = rollouts,
                .batch = r.sampler.padded(rollouts, device()),
                .training = training};
  if (!rollouts.logprobs.empty()) {
    auto drawn = torch::zeros(scored.batch["completion_ids"].sizes(), torch::kFloat);
    for (size_t i = 0; i < rows.size(); ++i)
      drawn[int64_t(i)].narrow(0, 0, int64_t(lengths[i])) =
          torch::tensor(rollouts.logprobs[i], torch::kFloat);
    scored.batch.set("sampling_per_token_logps", drawn.to(device()));
  }
  const auto counted = gathered(scored.batch["completion_mask"].sum().reshape({1})).sum();
  scored.batch.set("num_items_in_batch", counted);
  r.reward_cells.clear();
  score(scored, metrics);
  note(metrics, training);
  if (r.settings.log_completions) add_to_table(scored);
  return std::move(scored.batch);
}

/// The batch of this step: the next part of the completions that were made for several steps.
Batch RolloutTrainer::next_batch(const Batch& loaded) {
  auto& r = *rolling_;
  auto& memory = *r.memory;
  const auto parts = r.settings.steps_per_generation;
  if (memory.step % (parts * r.settings.num_iterations) == 0 || memory.parts.empty()) {
    auto made = make_batch(loaded, r.train_rows, /*training=*/true);
    const auto order = at::randperm(made.rows(), torch::kLong);
    memory.parts.assign(size_t(parts), Batch());
    for (auto& [name, value] : made) {
      const auto rows = value.dim() == 0 ? value : value.index_select(0, order.to(value.device()));
      for (int64_t i = 0; i < parts; ++i)
        memory.parts[size_t(i)].set(
            name, rows.dim() == 0
                      ? rows
                      : rows.narrow(0, i * (rows.size(0) / parts), rows.size(0) / parts));
    }
  }
  return memory.parts[size_t(memory.step % parts)];
}

Tensor RolloutTrainer::rewards_of(Scored& scored, MetricBatch& metrics) {
  auto& r = *rolling_;
  const auto completions = r.sampler.texts(scored.rollouts);
  RewardInputs::Notes notes;
  const auto own = r.scorer.score({.rows = scored.rows,
                                   .rollouts = scored.rollouts,
                                   .completions = completions,
                                   .state = state(),
                                   .device = device()},
                                  notes);
  const auto all = gathered(own);
  const auto names = r.scorer.names();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto column = all.select(1, int64_t(i));
    note(metrics, "rewards/" + names[i] + "/mean", column.nanmean());
    note(metrics, "rewards/" + names[i] + "/std", nan_deviation(column));
  }
  for (const auto& [name, mean] : logged_means(notes.metrics, processes().get()))
    note(metrics, name, torch::full({}, mean, torch::kDouble));
  if (!r.settings.log_completions) return all;
  for (size_t i = 0; i < names.size(); ++i)
    r.reward_cells.emplace_back(names[i], as_cells(own.select(1, int64_t(i))));
  for (const auto& [name, values] : notes.extra) r.reward_cells.emplace_back(name, values);
  return all;
}

Tensor RolloutTrainer::total_of(const Tensor& rewards) const {
  return weighted_rewards(rewards, rolling_->reward_weights);
}

int64_t RolloutTrainer::group_size(const Scored& scored) const {
  const auto& s = rolling_->settings;
  return scored.training ? s.num_generations : s.num_generations_eval;
}

void RolloutTrainer::set_advantages(Scored& scored, const Tensor& totals,
                                    const Advantages& advantages, MetricBatch& metrics) const {
  note(metrics, "reward", totals.nanmean());
  note(metrics, "reward_std", nan_deviation(totals));
  note(metrics, "frac_reward_zero_std", advantages.is_deviation_zero.to(torch::kFloat).mean());
  scored.advantages = own_part(advantages.values);
  scored.batch.set("advantages", scored.advantages);
}

void RolloutTrainer::add_to_table(const Scored& scored) {
  auto& r = *rolling_;
  const auto texts = r.sampler.texts(scored.rollouts);
  std::vector<Value> prompts, completions;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto* prompt = scored.rows[i].find("prompt");
    const bool is_chat = prompt != nullptr && prompt->is_nested();
    prompts.push_back(prompt != nullptr ? *prompt : Value());
    completions.push_back(is_chat ? Value::nested(nlohmann::json::array(
                                        {{{"role", "assistant"}, {"content", texts[i]}}}))
                                  : Value(texts[i]));
  }
  std::vector<std::pair<std::string, std::vector<Value>>> cells;
  cells.emplace_back("prompt", std::move(prompts));
  cells.emplace_back("completion", std::move(completions));
  for (auto& column : r.reward_cells) cells.push_back(std::move(column));
  if (scored.advantages.defined()) cells.emplace_back("advantage", as_cells(scored.advantages));
  if (!processes()) return r.completions.add(cells);
  CompletionsLog own(int64_t(texts.size()));
  own.add(cells);
  for (const auto& bytes : processes()->gather_bytes(own.state().dump())) {
    CompletionsLog theirs(int64_t(texts.size()));
    theirs.load(strict_json(bytes));
    r.completions.add(theirs);
  }
}

}  // namespace gradus
