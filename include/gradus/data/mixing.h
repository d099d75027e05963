#pragma once

#include <gradus/data/dataset.h>

namespace gradus {

/// The rows in the order of `datasets.Dataset.shuffle(seed=seed)`.
std::shared_ptr<Dataset> shuffled(const std::shared_ptr<const Dataset>& dataset, int64_t seed);

struct SplitOptions {
  /// Share (below 1) or number of rows of the test part.
  double test_size = 0.25;
  /// Without it the first rows are for training and the last ones for the test.
  bool shuffle = true;
  int64_t seed = 0;
};

struct TrainTest {
  std::shared_ptr<Dataset> train;
  std::shared_ptr<Dataset> test;
};

/// The parts `datasets.Dataset.train_test_split` makes for the same seed. Throws G-DATA-11 when one
/// would be empty.
TrainTest train_test_split(const std::shared_ptr<const Dataset>& dataset,
                           SplitOptions options = {});

enum class Stopping {
  first_exhausted,  ///< end when the first data set has no rows left
  all_exhausted,    ///< go on until every data set was seen whole; shorter ones begin again
};

struct InterleaveOptions {
  std::vector<double> probabilities = {};  ///< empty: in turn
  int64_t seed = 0;
  Stopping stopping = Stopping::first_exhausted;
};

/// Rows of several data sets, in turn or drawn with weights, in the order of
/// `datasets.interleave_datasets`. Throws G-DATA-12 when the probabilities do not fit.
std::shared_ptr<Dataset> interleave(std::vector<std::shared_ptr<const Dataset>> parts,
                                    InterleaveOptions options = {});

/// The same for streams, drawn while reading; its state holds those of its parts. That a part has
/// ended is seen when a row is asked of it; with `all_exhausted` it then begins its pass again.
std::shared_ptr<IterableDataset> interleave(std::vector<std::shared_ptr<IterableDataset>> parts,
                                            InterleaveOptions options = {});

}  // namespace gradus
