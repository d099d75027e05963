#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>
#include <gradus/data/tokenizer_like.h>

#include <nlohmann/json.hpp>

namespace gradus::data_test {

/// What gradus answers to a case of tests/parity/data/data_cases.py.
nlohmann::json run_case(const nlohmann::json& test);

Example example_from(const nlohmann::json& row);
nlohmann::json tensor_json(const torch::Tensor& tensor);

/// Ids 0 to 49; unknown 0, cls 1, sep 2, pad 3, mask 4.
struct SmallTokenizer : TokenizerLike {
  std::optional<int64_t> pad = 3;
  std::optional<int64_t> mask = 4;
  int64_t type_pad = 0;
  PaddingSide side = PaddingSide::right;

  std::optional<int64_t> pad_token_id() const override { return pad; }
  std::optional<int64_t> mask_token_id() const override { return mask; }
  int64_t pad_token_type_id() const override { return type_pad; }
  PaddingSide padding_side() const override { return side; }
  int64_t full_vocab_size() const override { return 50; }
  std::vector<int64_t> all_special_ids() const override { return {0, 1, 2, 3, 4}; }
};

}  // namespace gradus::data_test
