#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// How the tensors of an architecture are named (and laid out) in files, where that differs from
/// its modules.
///
/// Patterns are names in which `*` stands for any run of characters; the runs are carried over in
/// order. The first rule that fits is used. The same table serves loading and saving.
struct WeightRule {
  enum class Use { both, load };             ///< `load`: an old spelling, still read, never written
  enum class Transform { none, transpose };  ///< `transpose`: files hold the transposed matrix

  std::string file;    ///< name in the file: "*.LayerNorm.gamma"
  std::string module;  ///< name here:        "*.LayerNorm.weight"
  Use use = Use::both;
  Transform transform = Transform::none;
};

struct WeightTable {
  std::vector<WeightRule> rules;
  /// Names in files that are passed over without a word ("*.attn.masked_bias").
  std::vector<std::string> ignored;
};

/// `name` rewritten from one pattern to another; nullopt when it does not fit `from`.
std::optional<std::string> rewrite_name(std::string_view name, std::string_view from,
                                        std::string_view to);

}  // namespace gradus
