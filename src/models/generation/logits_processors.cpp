#include "models/generation/logits_processors.h"

#include <gradus/core/error.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>

namespace gradus {

using torch::Tensor;

namespace {

constexpr double kOut = -std::numeric_limits<double>::infinity();

Tensor without_tokens(const Tensor& scores, const std::vector<int64_t>& ids) {
  const auto vocabulary = scores.size(1);
  auto result = scores.clone();
  for (const auto id : ids)
    if (id >= 0 && id < vocabulary) result.select(1, id).fill_(kOut);
  return result;
}

Tensor only_tokens(const Tensor& scores, const std::vector<int64_t>& ids) {
  auto result = at::full_like(scores, kOut);
  for (const auto id : ids)
    if (id >= 0 && id < scores.size(1)) result.select(1, id).fill_(0.0);
  return result;
}

Tensor penalise_repetition(const Tensor& ids, const Tensor& scores, double penalty) {
  const auto seen = ids.clamp(0, scores.size(1) - 1);
  const auto score = scores.gather(1, seen);
  return scores.scatter(1, seen, at::where(score < 0, score * penalty, score / penalty));
}

std::vector<std::vector<int64_t>> as_rows(const Tensor& ids) {
  const auto here = ids.to(torch::kCPU).to(torch::kLong).contiguous();
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < here.size(0); ++i) {
    const auto* first = here.const_data_ptr<int64_t>() + i * here.size(1);
    rows.emplace_back(first, first + here.size(1));
  }
  return rows;
}

/// Bars every token that would complete an n-gram of `texts`, which has one row for each of `ids`
/// or for several in a row.
Tensor bar_ngrams(const Tensor& ids, const Tensor& scores, size_t size,
                  const std::vector<std::vector<int64_t>>& texts) {
  auto result = scores.clone();
  const auto rows = as_rows(ids);
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& tokens = rows[row];
    const auto& text = texts[row * texts.size() / rows.size()];
    if (tokens.size() + 1 < size) continue;
    const auto tail = tokens.end() - static_cast<int64_t>(size - 1);
    for (size_t i = 0; i + size <= text.size(); ++i)
      if (text[i + size - 1] < scores.size(1) &&
          std::equal(tail, tokens.end(), text.begin() + static_cast<int64_t>(i)))
        result[static_cast<int64_t>(row)][text[i + size - 1]] = kOut;
  }
  return result;
}

/// A word with an id that no token has can never come: a mistake, as in transformers.
void check_in_vocabulary(const char* name, const std::vector<int64_t>& ids, int64_t vocabulary) {
  for (const auto id : ids)
    if (id >= vocabulary)
      throw Error("G-GEN-2", ErrorKind::usage,
                  fmt::format("generate: {} holds token {}, but the model's vocabulary has {}",
                              name, id, vocabulary),
                  "Encode the words with the model's own tokenizer.");
}

/// Adds each bias to the last token of its sequence where the row ends in the tokens before it.
Tensor add_sequence_bias(const Tensor& ids, const Tensor& scores,
                         const std::vector<SequenceBias>& biases) {
  auto bias = at::zeros_like(scores);
  for (const auto& one : biases) {
    check_in_vocabulary("sequence_bias", one.ids, scores.size(1));
    const auto before = static_cast<int64_t>(one.ids.size()) - 1;
    if (before > ids.size(1)) continue;
    auto column = bias.select(1, one.ids.back());
    if (before == 0)
      column.fill_(one.bias);
    else
      column.add_(ids.narrow(1, ids.size(1) - before, before)
                      .eq(torch::tensor(std::vector<int64_t>(one.ids.begin(), one.ids.end() - 1),
                                        ids.options()))
                      .all(1)
                      .to(bias.scalar_type()) *
                  one.bias);
  }
  return scores + bias;
}

Tensor favour_ends(const Tensor& scores, const std::vector<int64_t>& ends, double factor) {
  auto result = scores.clone();
  for (const auto id : ends) {
    if (id < 0 || id >= scores.size(1)) continue;
    const auto score = scores.select(1, id);
    result.select(1, id).add_(
        (score.abs() * (factor - 1.0)).masked_fill(score.isfinite().logical_not(), 0.0));
  }
  return result;
}

/// Bars the last token of each sequence where the row ends in the tokens before it.
Tensor bar_sequences(const Tensor& ids, const Tensor& scores,
                     const std::vector<std::vector<int64_t>>& sequences) {
  auto result = scores.clone();
  const auto rows = as_rows(ids);
  for (const auto& sequence : sequences) {
    check_in_vocabulary("bad_words_ids", sequence, scores.size(1));
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto before = sequence.size() - 1;
      if (before > rows[row].size()) continue;
      if (std::equal(sequence.begin(), sequence.end() - 1,
                     rows[row].end() - static_cast<int64_t>(before)))
        result[static_cast<int64_t>(row)][sequence.back()] = kOut;
    }
  }
  return result;
}

Tensor keep_top_k(const Tensor& scores, int64_t k) {
  const auto least = std::get<0>(scores.topk(std::min(k, scores.size(1)), 1))
                         .narrow(1, std::min(k, scores.size(1)) - 1, 1);
  return scores.masked_fill(scores < least, kOut);
}

Tensor keep_top_h(const Tensor& scores, double share) {
  constexpr int64_t kMost = 100;
  const auto [best, places] = scores.topk(std::min(kMost, scores.size(1)), 1);
  const auto logs = best - best.logsumexp(1, /*keepdim=*/true);
  const auto probabilities = logs.softmax(1);
  const auto parts = -probabilities * probabilities.log();
  const auto limit = -(logs.clamp_min(std::numeric_limits<float>::lowest()) * probabilities)
                          .sum(1, /*keepdim=*/true) *
                     share;
  auto kept = parts.cumsum(1) <= limit;
  kept.select(1, 0).fill_(true);
  return scores.masked_fill(
      at::zeros_like(scores, torch::kBool).scatter_(1, places, kept).logical_not_(), kOut);
}

Tensor keep_top_p(const Tensor& scores, double p, int64_t at_least) {
  const auto [sorted, places] = scores.sort(1, /*descending=*/false);
  auto removed = sorted.softmax(1).cumsum(1) <= (1.0 - p);
  const auto kept = std::min(at_least, scores.size(1));
  removed.narrow(1, scores.size(1) - kept, kept).fill_(false);
  return scores.masked_fill(removed.scatter(1, places, removed), kOut);
}

Tensor keep_min_p(const Tensor& scores, double p, int64_t at_least) {
  const auto probabilities = scores.softmax(1);
  auto removed = probabilities < probabilities.amax(1, /*keepdim=*/true) * p;
  removed.scatter_(1, std::get<1>(probabilities.topk(std::min(at_least, scores.size(1)), 1)),
                   false);
  return scores.masked_fill(removed, kOut);
}

Tensor keep_typical(const Tensor& scores, double mass, int64_t at_least) {
  const auto normalised = scores.log_softmax(1);
  const auto entropy =
      -(normalised * normalised.exp()).nansum(at::IntArrayRef{1}, /*keepdim=*/true);
  const auto [distance, places] = (-normalised - entropy).abs().sort(1, /*descending=*/false);
  const auto cumulated = scores.gather(1, places).softmax(1).cumsum(1);
  const auto last = (cumulated < mass).sum(1).clamp_max(scores.size(1) - 1).view({-1, 1});
  auto removed = distance > distance.gather(1, last);
  removed.narrow(1, 0, std::min(at_least, scores.size(1))).fill_(false);
  return scores.masked_fill(removed.scatter(1, places, removed), kOut);
}

/// Drops tokens less likely than `least`, but never the `at_least` best.
Tensor drop_unlikely(const Tensor& scores, const Tensor& least, int64_t at_least) {
  const auto k = std::min(at_least, scores.size(1));
  const auto best = std::get<0>(scores.topk(k, 1)).narrow(1, k - 1, 1);
  return scores.masked_fill((scores.softmax(1) < least).logical_and_(scores < best), kOut);
}

Tensor drop_by_eta(const Tensor& scores, double epsilon, int64_t at_least) {
  const auto logs = scores.log_softmax(1), probabilities = logs.exp();
  const auto entropy = -(probabilities * at::where(probabilities > 0, logs, 0.0)).sum(1);
  const auto least = (entropy.neg().exp() * std::sqrt(epsilon)).clamp_max(epsilon).unsqueeze(1);
  return drop_unlikely(scores, least, at_least);
}

Tensor without_invalid(const Tensor& scores) {
  const auto largest = static_cast<double>(std::numeric_limits<float>::max());
  return scores.nan_to_num(0.0, largest, -largest);
}

void append_warpers(std::vector<LogitsProcessor>& all, const GenerationOptions& options) {
  const auto ends =
      options.eos_token_id ? static_cast<int64_t>(options.eos_token_id->ids().size()) : 1;
  const int64_t keep = *options.num_beams > 1 ? ends + 1 : 1;
  if (*options.temperature != 1.0)
    all.push_back([t = *options.temperature](const Tensor&, Tensor scores) { return scores / t; });
  if (options.top_h)
    all.push_back(
        [h = *options.top_h](const Tensor&, Tensor scores) { return keep_top_h(scores, h); });
  if (*options.top_k != 0)
    all.push_back([k = std::max(*options.top_k, keep)](const Tensor&, Tensor scores) {
      return keep_top_k(scores, k);
    });
  if (*options.top_p < 1.0)
    all.push_back([p = *options.top_p, keep](const Tensor&, Tensor scores) {
      return keep_top_p(scores, p, keep);
    });
  if (options.min_p)
    all.push_back([p = *options.min_p, keep](const Tensor&, Tensor scores) {
      return keep_min_p(scores, p, keep);
    });
  if (*options.typical_p < 1.0)
    all.push_back([p = *options.typical_p, keep](const Tensor&, Tensor scores) {
      return keep_typical(scores, p, keep);
    });
  if (const auto cutoff = options.epsilon_cutoff.value_or(0.0); cutoff > 0.0 && cutoff < 1.0)
    all.push_back([cutoff, keep](const Tensor&, Tensor scores) {
      return drop_unlikely(scores, scores.new_full({}, cutoff), keep);
    });
  if (const auto cutoff = options.eta_cutoff.value_or(0.0); cutoff > 0.0 && cutoff < 1.0)
    all.push_back(
        [cutoff, keep](const Tensor&, Tensor scores) { return drop_by_eta(scores, cutoff, keep); });
}

}  // namespace

std::vector<LogitsProcessor> make_logits_processors(const GenerationOptions& options,
                                                    const ProcessorContext& context) {
  std::vector<LogitsProcessor> all;
  const auto prompt_length = context.prompt_length, max_length = context.max_length;
  const auto ends = options.eos_token_id ? options.eos_token_id->ids() : std::vector<int64_t>{};
  if (options.sequence_bias)
    all.push_back([biases = *options.sequence_bias](const Tensor& ids, Tensor scores) {
      return add_sequence_bias(ids, scores, biases);
    });
  if (options.encoder_repetition_penalty.value_or(1.0) != 1.0)
    all.push_back([given = context.encoder_ids, p = 1.0 / *options.encoder_repetition_penalty](
                      const Tensor&, Tensor scores) {
      return penalise_repetition(given.repeat_interleave(scores.size(0) / given.size(0), 0), scores,
                                 p);
    });
  if (*options.repetition_penalty != 1.0)
    all.push_back([p = *options.repetition_penalty](const Tensor& ids, Tensor scores) {
      return penalise_repetition(ids, scores, p);
    });
  if (*options.no_repeat_ngram_size > 0)
    all.push_back(
        [n = static_cast<size_t>(*options.no_repeat_ngram_size)](const Tensor& ids, Tensor scores) {
          return bar_ngrams(ids, scores, n, as_rows(ids));
        });
  if (const auto n = options.encoder_no_repeat_ngram_size.value_or(0); n > 0)
    all.push_back(
        [n = static_cast<size_t>(n), given = as_rows(context.encoder_ids)](
            const Tensor& ids, Tensor scores) { return bar_ngrams(ids, scores, n, given); });
  if (options.bad_words_ids) {
    auto sequences = *options.bad_words_ids;
    std::erase_if(sequences, [&](const auto& sequence) {
      return sequence.size() == 1 && std::find(ends.begin(), ends.end(), sequence[0]) != ends.end();
    });
    all.push_back([sequences](const Tensor& ids, Tensor scores) {
      return bar_sequences(ids, scores, sequences);
    });
  }
  const auto shortest =
      options.min_new_tokens ? prompt_length + *options.min_new_tokens : *options.min_length;
  if (shortest > 0 && !ends.empty())
    all.push_back([shortest, ends](const Tensor& ids, Tensor scores) {
      return ids.size(1) < shortest ? without_tokens(scores, ends) : scores;
    });
  if (options.forced_bos_token_id)
    all.push_back([id = *options.forced_bos_token_id](const Tensor& ids, Tensor scores) {
      return ids.size(1) == 1 ? only_tokens(scores, {id}) : scores;
    });
  if (options.forced_eos_token_id)
    all.push_back([last = max_length - 1, id = options.forced_eos_token_id->ids()](
                      const Tensor& ids, Tensor scores) {
      return ids.size(1) == last ? only_tokens(scores, id) : scores;
    });
  if (options.remove_invalid_values.value_or(false))
    all.push_back([](const Tensor&, Tensor scores) { return without_invalid(scores); });
  if (options.exponential_decay_length_penalty && !ends.empty())
    all.push_back([decay = *options.exponential_decay_length_penalty, prompt_length, ends](
                      const Tensor& ids, Tensor scores) {
      const auto beyond = ids.size(1) - prompt_length - decay.start;
      return beyond > 0
                 ? favour_ends(scores, ends, std::pow(decay.factor, static_cast<double>(beyond)))
                 : scores;
    });
  if (options.suppress_tokens)
    all.push_back([id = *options.suppress_tokens](const Tensor&, Tensor scores) {
      return without_tokens(scores, id);
    });
  if (options.begin_suppress_tokens) {
    const auto begin =
        prompt_length > 1 || !options.forced_bos_token_id ? prompt_length : prompt_length + 1;
    all.push_back([begin, id = *options.begin_suppress_tokens](const Tensor& ids, Tensor scores) {
      return ids.size(1) == begin ? without_tokens(scores, id) : scores;
    });
  }
  for (const auto& own : options.logits_processors) all.push_back(own);
  if (*options.do_sample) append_warpers(all, options);
  if (options.renormalize_logits.value_or(false))
    all.push_back([](const Tensor&, Tensor scores) { return scores.log_softmax(1); });
  return all;
}

}  // namespace gradus
