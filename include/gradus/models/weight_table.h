#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// Maps the name of a tensor in files to its name in the module tree, where the two differ.
///
/// In a pattern `*` matches any characters; what it matches is carried over in order.
struct WeightRule {
  /// When a rule applies.
  enum class Use {
    both,  ///< Loading and saving.
    load   ///< Loading only: an old name that is read but never written.
  };
  /// How the tensor itself differs.
  enum class Transform {
    none,      ///< Not at all.
    transpose  ///< The file holds the transposed matrix.
  };

  std::string file;                       ///< Name in the file: "*.LayerNorm.gamma".
  std::string module;                     ///< Name in the module tree: "*.LayerNorm.weight".
  Use use = Use::both;                    ///< When the rule applies.
  Transform transform = Transform::none;  ///< How the tensor is changed.
};

/// All rules of an architecture. The same table serves loading and saving.
struct WeightTable {
  std::vector<WeightRule> rules;  ///< The first rule that matches is used.
  /// Names that only the file or only the model may have, silently ("*.attn.masked_bias").
  std::vector<std::string> ignored;
};

/// Rewrites `name` from the pattern `from` to the pattern `to`; unset when it does not match.
std::optional<std::string> rewrite_name(std::string_view name, std::string_view from,
                                        std::string_view to);

}  // namespace gradus
