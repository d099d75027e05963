#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

/// The scores of transformers' example scripts, with the numbers of scikit-learn, scipy and
/// seqeval.
///
/// References (what is right) come first, predictions second, as in scikit-learn; both have the
/// same length, else G-TASK-6 is thrown. A ratio whose denominator is zero is 0, as there. Where
/// nothing can be said (no rows, a constant column, NaN among the values) the result is NaN. Pure
/// functions; safe from any thread.
namespace gradus::metrics {

/// How the scores of several classes become one.
enum class Average {
  binary,    ///< of the class 1 alone; throws G-TASK-7 when there are other classes than two
  micro,     ///< all classes counted together
  macro,     ///< the plain mean over classes that occur in references or predictions
  weighted,  ///< the mean weighted by how often each class occurs in the references
};

/// Three scores that belong together.
struct PrecisionRecallF1 {
  double precision = 0;  ///< share of the predictions that are right
  double recall = 0;     ///< share of the references that are found
  double f1 = 0;         ///< harmonic mean of both
};

/// The share of equal entries.
double accuracy(std::span<const int64_t> references, std::span<const int64_t> predictions);
/// Precision, recall and F1 of classes. A score without a divisor is 0.
PrecisionRecallF1 precision_recall_f1(std::span<const int64_t> references,
                                      std::span<const int64_t> predictions,
                                      Average average = Average::binary);
/// Each row has any number of labels: tensors (rows, labels), nonzero where one is set. `binary` is
/// not possible.
PrecisionRecallF1 multilabel_precision_recall_f1(const torch::Tensor& references,
                                                 const torch::Tensor& predictions,
                                                 Average average = Average::micro);
/// Matthews' correlation coefficient for any number of classes; 0 when one side has a single class.
double matthews_correlation(std::span<const int64_t> references,
                            std::span<const int64_t> predictions);

/// The mean of squared differences.
double mean_squared_error(std::span<const double> references, std::span<const double> predictions);
/// NaN for fewer than two rows or a constant column.
double pearson_correlation(std::span<const double> references, std::span<const double> predictions);
/// Pearson's of the ranks; equal values share the mean of their ranks.
double spearman_correlation(std::span<const double> references,
                            std::span<const double> predictions);

/// exp(loss); infinity when that is too large.
double perplexity(double loss);

/// A labelled span of a row: tokens [first, last].
struct Entity {
  std::string type;   ///< "PER"
  int64_t first = 0;  ///< its first token
  int64_t last = 0;   ///< its last token
  /// By type, then by place.
  auto operator<=>(const Entity&) const = default;
};

/// The entities of tags such as B-PER, I-PER, O, by seqeval's forgiving rules: I- after O or after
/// another type begins an entity; E- and S- are known too; a tag without a prefix has its first
/// character taken for one.
std::vector<Entity> entities_of(std::span<const std::string> tags);

/// The scores of entities.
struct EntityScores {
  /// Those of one type.
  struct OfType : PrecisionRecallF1 {
    int64_t number = 0;  ///< entities of that type in the references
  };
  std::map<std::string, OfType> types;  ///< by type
  PrecisionRecallF1 overall;            ///< micro average
  double accuracy = 0;                  ///< of single tags
};

/// The tags of each row.
using TagRows = std::vector<std::vector<std::string>>;
/// An entity counts as found when type, begin and end agree.
EntityScores entity_scores(const TagRows& references, const TagRows& predictions);

}  // namespace gradus::metrics
