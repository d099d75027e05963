#pragma once

#include <gradus/vision/image_dataset.h>

#include "tasks/text_data.h"

namespace gradus::tasks {

/// The flags of run_image_classification that name the data.
struct ImageDataFlags {
  std::optional<std::string> dataset_name = std::nullopt;
  std::optional<std::string> dataset_config_name = std::nullopt;
  std::optional<std::string> train_dir = std::nullopt;
  std::optional<std::string> validation_dir = std::nullopt;
  std::optional<double> train_val_split = 0.15;
  std::optional<int64_t> max_train_samples = std::nullopt;
  std::optional<int64_t> max_eval_samples = std::nullopt;
  std::string image_column_name = "image";
  std::string label_column_name = "label";
  int64_t skip_bad_rows = 0;
  bool scaled_decoding = false;
};
void add_options(OptionSet& options, ImageDataFlags& flags);

/// Some of the images of a source.
struct ImageSplit {
  std::shared_ptr<const ImageSource> source = nullptr;
  std::vector<int64_t> rows = {};
  explicit operator bool() const { return source != nullptr; }
};

/// The images to train and to evaluate on, and the names of their classes.
struct LabeledImages {
  ImageSplit train, validation;
  std::vector<std::string> class_names;
};

/// Looks at names alone. Throws G-TASK-9 (usage).
void check_image_flags(const TrainingArguments& args, const ImageDataFlags& flags);
/// Opens folders or a table, splits off the rows to evaluate on when there are none, takes the
/// samples that the flags ask for, and leaves out bad images where that is allowed. The orders are
/// those of the script: numpy's generator with the seed of the run.
LabeledImages open_image_splits(const TrainingArguments& args, const ImageDataFlags& flags);

}  // namespace gradus::tasks
