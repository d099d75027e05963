#include "case_runner.h"

#include <gradus/core/error.h>
#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/mixing.h>
#include <gradus/data/packing.h>
#include <gradus/data/streams.h>

#include <numeric>

namespace gradus::data_test {
namespace {

using json = nlohmann::json;
using Indices = std::vector<int64_t>;

std::optional<int64_t> optional_int(const json& options, const char* name) {
  return options.contains(name) ? std::optional(options[name].get<int64_t>()) : std::nullopt;
}

Value value_from(const json& value) {
  if (value.is_null()) return nullptr;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object())
    return torch::tensor(value.at("tensor").get<Indices>(), at::kLong)
        .to(value.at("dtype") == "int32" ? at::kInt : at::kLong);
  const auto all = [&](auto test) { return std::all_of(value.begin(), value.end(), test); };
  if (all([](const json& item) { return item.is_number_integer(); })) return value.get<Indices>();
  if (all([](const json& item) { return item.is_number(); }))
    return value.get<std::vector<double>>();
  return Value::nested(value);
}

std::shared_ptr<Dataset> numbered(int64_t rows, int64_t first = 0) {
  return from_tensors({{"row", torch::arange(first, first + rows)}});
}

Indices rows_of(const Dataset& dataset) {
  Indices result;
  for (int64_t i = 0; i < dataset.size(); ++i)
    result.push_back(dataset.get(i).at("row").to_tensor().item<int64_t>());
  return result;
}

json batches_of(const DataLoader& loader, int64_t epoch) {
  auto result = json::array();
  auto iterator = loader.iterate(epoch);
  while (auto batch = iterator.next()) {
    const auto rows = batch->at("row");
    result.push_back(
        Indices(rows.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>() + rows.numel()));
  }
  return result;
}

json order(const json& test) {
  const auto rows = test.at("rows").get<int64_t>();
  DataLoaderOptions options;
  options.dataset = numbered(rows);
  options.batch_size = test.at("batch_size");
  options.sampler =
      test.at("sampler") == "random" ? random_sampler(rows, test.at("seed")) : nullptr;
  options.drop_last = test.at("drop_last");
  options.shard = {.rank = test.at("rank"),
                   .world = test.at("world"),
                   .even_batches = test.at("even_batches"),
                   .split_batches = test.at("split_batches")};
  const DataLoader loader(options);
  auto batches = batches_of(loader, test.at("epoch"));
  if (static_cast<int64_t>(batches.size()) != loader.size())
    return "size() says " + std::to_string(*loader.size());
  return {{"batches", batches}};
}

json grouped(const json& test) {
  const Indices lengths = test.at("lengths");
  const auto sampler = test.at("world") == 1
                           ? length_grouped_sampler(lengths, test.at("batch_size"), test.at("seed"))
                           : distributed_length_grouped_sampler(
                                 lengths, test.at("batch_size"), test.at("seed"), test.at("rank"),
                                 test.at("world"), test.at("drop_last"));
  return {{"order", sampler->order(test.at("epoch"))}};
}

// The batches of an epoch, in order and then each alone from a fresh sampler: a resume needs
// nothing of what came before.
json rebalanced(const json& test) {
  const Indices lengths = test.at("lengths");
  const auto sampler =
      batch_rebalance_sampler(lengths, {.effective_batch_size = test.at("effective_batch_size"),
                                        .gradient_accumulation_steps = test.at("grad_accum"),
                                        .rank = test.at("rank"),
                                        .world = test.at("world"),
                                        .shuffle = test.at("shuffle"),
                                        .seed = test.at("seed"),
                                        .drop_last = test.at("drop_last")});
  DataLoaderOptions options;
  options.dataset = numbered(static_cast<int64_t>(lengths.size()));
  options.batch_sampler = sampler;
  const DataLoader loader(options);
  const auto batches = batches_of(loader, test.at("epoch"));
  if (static_cast<int64_t>(batches.size()) != loader.size())
    return "size() says " + std::to_string(*loader.size());
  Indices alone;
  for (auto number = *loader.size() - 1; number >= 0; number -= 3) {
    sampler->open(test.at("epoch"))->read(number, alone);
    if (json(alone) != batches[static_cast<size_t>(number)])
      return "batch " + std::to_string(number) + " alone is another";
  }
  return {{"batches", batches}};
}

json repeated(const json& test) {
  const auto sampler =
      repeat_sampler(test.at("rows"), {.mini_repeat_count = test.at("mini_repeat_count"),
                                       .batch_size = test.at("batch_size"),
                                       .repeat_count = test.at("repeat_count"),
                                       .shuffle = test.at("shuffle"),
                                       .seed = test.at("seed")});
  return {{"order", sampler->order(test.at("epoch"))}};
}

json iterable_shard(const json& test) {
  const auto source = [&] { return as_stream(numbered(test.at("rows"))); };
  const auto shard = shard_stream(source(), test.at("batch_size"), test.at("rank"),
                                  test.at("world"), test.at("drop_last"));
  shard->reset(0);
  Indices order;
  while (auto row = shard->next()) order.push_back(row->at("row").to_tensor().item<int64_t>());
  DataLoaderOptions options;
  options.dataset = source();
  options.batch_size = test.at("batch_size");
  options.drop_last = test.at("drop_last");
  options.shard = {.rank = test.at("rank"), .world = test.at("world")};
  return {{"order", order}, {"batches", batches_of(DataLoader(options), 0)}};
}

json mixing(const json& test) {
  std::vector<std::shared_ptr<const Dataset>> parts;
  for (size_t part = 0; part < test.at("rows").size(); ++part)
    parts.push_back(numbered(test["rows"][part], 100 * static_cast<int64_t>(part)));
  const auto seed = test.at("seed").get<int64_t>();
  if (test.at("kind") == "shuffle") return {{"order", rows_of(*shuffled(parts.front(), seed))}};
  if (test.at("kind") == "split") {
    const auto split = train_test_split(
        parts.front(),
        {.test_size = test.at("test_size"), .shuffle = test.at("shuffle"), .seed = seed});
    return {{"train", rows_of(*split.train)}, {"test", rows_of(*split.test)}};
  }
  const auto stopping = test.at("stopping") == "first_exhausted" ? Stopping::first_exhausted
                                                                 : Stopping::all_exhausted;
  return {{"order", rows_of(*interleave(parts, {.probabilities = test.at("probabilities"),
                                                .seed = seed,
                                                .stopping = stopping}))}};
}

json packed(const json& test) {
  std::vector<Example> rows;
  const auto& columns = test.at("columns");
  for (size_t row = 0; row < columns.at("input_ids").size(); ++row) {
    rows.push_back({{"input_ids", columns["input_ids"][row].get<Indices>()},
                    {"labels", columns["labels"][row].get<Indices>()}});
  }
  const auto result = pack_dataset(
      from_examples(rows), {.seq_length = test.at("seq_length"),
                            .strategy = packing_strategy(test.at("strategy").get<std::string>())});
  json answer = json::object();
  for (int64_t i = 0; i < result->size(); ++i) {
    for (const auto& [name, value] : result->get(i)) answer[name].push_back(value.ints());
  }
  return {{"columns", answer}};
}

template <class Options>
Options padded(const json& test, std::shared_ptr<const TokenizerLike> tokenizer) {
  const auto& options = test.at("options");
  Options result;
  result.tokenizer = std::move(tokenizer);
  const auto padding = options.value("padding", "longest");
  result.padding = padding == "longest"      ? PaddingStrategy::longest
                   : padding == "max_length" ? PaddingStrategy::max_length
                                             : PaddingStrategy::do_not_pad;
  result.max_length = optional_int(options, "max_length");
  result.pad_to_multiple_of = optional_int(options, "pad_to_multiple_of");
  return result;
}

DataCollator masking_collator(const std::string& name, const json& options,
                              std::shared_ptr<const TokenizerLike> tokenizer) {
  if (name == "ForPermutationLanguageModeling") {
    return DataCollatorForPermutationLanguageModeling(
        {.tokenizer = tokenizer,
         .plm_probability = options.value("plm_probability", 1.0 / 6),
         .max_span_length = options.value("max_span_length", 5),
         .seed = optional_int(options, "seed")});
  }
  return DataCollatorForLanguageModeling(
      {.tokenizer = tokenizer,
       .mlm = options.value("mlm", true),
       .whole_word_mask = options.value("whole_word_mask", false),
       .mlm_probability = options.value("mlm_probability", 0.15),
       .mask_replace_prob = options.value("mask_replace_prob", 0.8),
       .random_replace_prob = options.value("random_replace_prob", 0.1),
       .pad_to_multiple_of = optional_int(options, "pad_to_multiple_of"),
       .seed = optional_int(options, "seed")});
}

DataCollator trl_collator(const std::string& name, const json& options) {
  const auto multiple = optional_int(options, "pad_to_multiple_of");
  if (name == "Sft") {
    return DataCollatorForSft({.pad_token_id = options.at("pad_token_id"),
                               .padding_free = options.value("padding_free", false),
                               .return_position_ids = options.value("return_position_ids", false),
                               .pad_to_multiple_of = multiple});
  }
  if (name == "UnpairedPreference")
    return DataCollatorForUnpairedPreference({.pad_token_id = options.at("pad_token_id"),
                                              .max_length = optional_int(options, "max_length"),
                                              .pad_to_multiple_of = multiple});
  const auto truncation = options.value("truncation_mode", "keep_start") == "keep_start"
                              ? TruncationMode::keep_start
                              : TruncationMode::keep_end;
  return DataCollatorForPreference({.pad_token_id = options.at("pad_token_id"),
                                    .max_length = optional_int(options, "max_length"),
                                    .truncation_mode = truncation,
                                    .pad_to_multiple_of = multiple});
}

DataCollator collator_for(const json& test) {
  auto tokenizer = std::make_shared<SmallTokenizer>();
  tokenizer->side =
      test.at("tokenizer").at("padding_side") == "right" ? PaddingSide::right : PaddingSide::left;
  tokenizer->type_pad = test.at("tokenizer").at("pad_token_type_id");
  const auto& options = test.at("options");
  const std::string name = test.at("collator");
  if (name == "default") return default_data_collator;
  if (name == "WithPadding")
    return DataCollatorWithPadding(padded<DataCollatorWithPaddingOptions>(test, tokenizer));
  if (name == "ForMultipleChoice")
    return DataCollatorForMultipleChoice(padded<DataCollatorWithPaddingOptions>(test, tokenizer));
  if (name == "ForSeq2Seq")
    return DataCollatorForSeq2Seq(padded<DataCollatorForSeq2SeqOptions>(test, tokenizer));
  if (name == "ForTokenClassification") {
    auto mine = padded<DataCollatorForTokenClassificationOptions>(test, tokenizer);
    mine.label_pad_token_id = options.value("label_pad_token_id", -100);
    return DataCollatorForTokenClassification(mine);
  }
  if (name == "ForLanguageModeling" || name == "ForPermutationLanguageModeling")
    return masking_collator(name, options, tokenizer);
  if (name == "WithFlattening") {
    return DataCollatorWithFlattening(
        {.return_position_ids = options.at("return_position_ids"),
         .separator_id = options.at("separator_id"),
         .return_flash_attn_kwargs = options.at("return_flash_attn_kwargs"),
         .return_seq_idx = options.at("return_seq_idx"),
         .position_ids_start = options.at("position_ids_start")});
  }
  return trl_collator(name, options);
}

json collated(const json& test) {
  std::vector<Example> rows;
  for (const auto& row : test.at("rows")) rows.push_back(example_from(row));
  try {
    auto batch = json::object();
    for (const auto& [name, value] : collator_for(test)(rows)) batch[name] = tensor_json(value);
    return {{"batch", batch}};
  } catch (const Error&) {
    return {{"error", true}};
  }
}

}  // namespace

Example example_from(const json& row) {
  Example result;
  for (const auto& [name, value] : row.items()) result.set(name, value_from(value));
  return result;
}

json tensor_json(const torch::Tensor& tensor) {
  static const std::map<at::ScalarType, std::string> names{
      {at::kLong, "int64"}, {at::kInt, "int32"}, {at::kFloat, "float32"}, {at::kBool, "bool"}};
  auto data = json::array();
  const auto flat = tensor.flatten().contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (tensor.scalar_type() == at::kBool)
      data.push_back(flat[i].item<bool>());
    else if (tensor.is_floating_point())
      data.push_back(flat[i].item<double>());
    else
      data.push_back(flat[i].item<int64_t>());
  }
  return {
      {"dtype", names.at(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data", data}};
}

json run_case(const json& test) {
  const std::string kind = test.at("kind");
  if (kind == "order") return order(test);
  if (kind == "grouped") return grouped(test);
  if (kind == "rebalance") return rebalanced(test);
  if (kind == "repeat") return repeated(test);
  if (kind == "shard")
    return {{"order", shard_sampler(test.at("rows"), test.at("batch_size"), test.at("rank"),
                                    test.at("world"), test.at("drop_last"))
                          ->order(0)}};
  if (kind == "iterable_shard") return iterable_shard(test);
  if (kind == "pack") return packed(test);
  if (kind == "collate") return collated(test);
  return mixing(test);
}

}  // namespace gradus::data_test
