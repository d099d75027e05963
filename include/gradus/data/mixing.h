#pragma once

#include <gradus/data/dataset.h>

namespace gradus {

/// The rows in the order of `datasets.Dataset.shuffle(seed=seed)`.
std::shared_ptr<Dataset> shuffled(const std::shared_ptr<const Dataset>& dataset, int64_t seed);

/// Options of `train_test_split`.
struct SplitOptions {
  /// Share of the rows (below 1), or number of rows, of the test part.
  double test_size = 0.25;
  /// Whether rows are drawn at random. Otherwise the last rows are the test part.
  bool shuffle = true;
  int64_t seed = 0;  ///< For `shuffle`.
};

/// The two parts of a data set.
struct TrainTest {
  std::shared_ptr<Dataset> train;  ///< For training.
  std::shared_ptr<Dataset> test;   ///< For evaluation.
};

/// The parts `datasets.Dataset.train_test_split` makes for the same seed. Throws G-DATA-11 when one
/// would be empty.
TrainTest train_test_split(const std::shared_ptr<const Dataset>& dataset,
                           SplitOptions options = {});

/// When an interleaved pass ends.
enum class Stopping {
  first_exhausted,  ///< When one data set has no rows left.
  all_exhausted,    ///< When every data set was read completely; shorter ones start again.
};

/// Options of `interleave`.
struct InterleaveOptions {
  std::vector<double> probabilities = {};         ///< One per data set; empty takes them in turn.
  int64_t seed = 0;                               ///< For drawing with probabilities.
  Stopping stopping = Stopping::first_exhausted;  ///< When the pass ends.
};

/// Rows of several data sets, in turn or drawn with weights, in the order of
/// `datasets.interleave_datasets`. Throws G-DATA-12 when the probabilities do not fit.
std::shared_ptr<Dataset> interleave(std::vector<std::shared_ptr<const Dataset>> parts,
                                    InterleaveOptions options = {});

/// The same for streams, drawn while reading. Its state holds the states of its parts. A part
/// has ended when it has no row left at its turn; with `all_exhausted` it then starts
/// again.
std::shared_ptr<IterableDataset> interleave(std::vector<std::shared_ptr<IterableDataset>> parts,
                                            InterleaveOptions options = {});

}  // namespace gradus
