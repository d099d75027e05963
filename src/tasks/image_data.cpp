#include "tasks/image_data.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>

#include <cmath>
#include <numeric>

#include "data/numpy_random.h"

namespace gradus::tasks {
namespace fs = std::filesystem;
namespace {

constexpr OptionRow<ImageDataFlags> kImageDataRows[] = {
    {&ImageDataFlags::dataset_name, "dataset_name", Group::data, any_value(),
     "fashion_mnist, or a folder of Parquet or Arrow files with a column of images."},
    {&ImageDataFlags::dataset_config_name, "dataset_config_name", Group::data, any_value(),
     "Accepted for compatibility: a folder holds one configuration."},
    {&ImageDataFlags::train_dir, "train_dir", Group::data, any_value(),
     "A folder to train on, with one folder of PNG, JPEG or WebP files per class."},
    {&ImageDataFlags::validation_dir, "validation_dir", Group::data, any_value(),
     "A folder of the same kind to evaluate on."},
    {&ImageDataFlags::train_val_split, "train_val_split", Group::data, within(0.0, 1.0),
     "Share of the training rows to evaluate on when there are no others; 0: none."},
    {&ImageDataFlags::max_train_samples, "max_train_samples", Group::data, at_least(1),
     "Train on this many rows, taken at random with the run's seed (the first ones of idx files)."},
    {&ImageDataFlags::max_eval_samples, "max_eval_samples", Group::data, at_least(1),
     "Evaluate on this many rows, taken in the same way."},
    {&ImageDataFlags::image_column_name, "image_column_name", Group::data, any_value(),
     "The column of the images: bytes and path, bytes, or a path."},
    {&ImageDataFlags::label_column_name, "label_column_name", Group::data, any_value(),
     "The column of the classes."},
    {&ImageDataFlags::skip_bad_rows, "skip_bad_rows", Group::data, at_least(0),
     "Skip up to this many images that cannot be decoded; each is reported. All are decoded once "
     "before training.",
     Origin::gradus},
    {&ImageDataFlags::scaled_decoding, "scaled_decoding", Group::data, any_value(),
     "Decode large JPEG files at 1/2, 1/4 or 1/8 of their size: faster, with slightly other "
     "pixels.",
     Origin::gradus},
};

[[noreturn]] void refuse_images(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-9", ErrorKind::usage, message, advice);
}

ImageSplit all_rows(std::shared_ptr<const ImageSource> source) {
  if (!source) return {};
  std::vector<int64_t> rows(static_cast<size_t>(source->size()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return {std::move(source), std::move(rows)};
}

/// A split of `--dataset_name`; without a source when it has none of that name.
std::shared_ptr<ImageSource> open_image_table(const ImageDataFlags& flags, const std::string& name,
                                              const std::vector<std::string>& class_names) {
  DataFlags data;
  data.dataset_name = flags.dataset_name;
  const auto split = open_split(data, std::nullopt, name);
  if (!split) return nullptr;
  const auto columns = split.column_names();
  for (const auto* column : {&flags.image_column_name, &flags.label_column_name})
    if (std::find(columns.begin(), columns.end(), *column) == columns.end()) {
      const ColumnNeed need[] = {{.name = *column}};
      require_columns(*split.rows, need, split.where);
    }
  auto folder = expand_user(*flags.dataset_name);  // where paths begin
  if (!fs::is_directory(folder)) folder = folder.parent_path();
  LoadOptions only_labels;
  only_labels.columns = {flags.label_column_name};
  const auto labels = open_split(data, std::nullopt, name, only_labels);
  return image_table(split.rows, split.columns,
                     {.image_column = flags.image_column_name,
                      .label_column = flags.label_column_name,
                      .class_names = class_names,
                      .labels = labels.rows,
                      .where = split.where,
                      .folder = folder});
}

LabeledImages open_sources(const ImageDataFlags& flags) {
  LabeledImages images;
  if (flags.dataset_name) {
    images.train = all_rows(open_image_table(flags, "train", {}));
    if (images.train) images.class_names = images.train.source->class_names();
    images.validation = all_rows(open_image_table(flags, "validation", images.class_names));
  } else {
    std::vector<fs::path> folders;
    for (const auto* folder : {&flags.train_dir, &flags.validation_dir})
      if (*folder) folders.emplace_back(**folder);
    const auto sources = image_folders(folders);
    if (flags.train_dir) images.train = all_rows(sources.front());
    if (flags.validation_dir) images.validation = all_rows(sources.back());
  }
  const auto& any = images.train ? images.train : images.validation;
  if (!any)
    throw Error("G-TASK-9", ErrorKind::data,
                fmt::format("{} holds neither a split train nor validation",
                            flags.dataset_name.value_or("")),
                "Name the files train… and validation…, as the hubs do.");
  images.class_names = any.source->class_names();
  return images;
}

/// `Dataset.train_test_split` with the generator that follows from `set_seed`.
void split_off(LabeledImages& images, double share, int64_t seed) {
  const auto count = static_cast<int64_t>(images.train.rows.size());
  const auto held_out = int64_t(std::ceil(share * double(count)));
  if (held_out >= count)
    throw Error(
        "G-TASK-10", ErrorKind::data,
        fmt::format("--train_val_split {} of {} images leaves none to train on", share, count),
        "Give a smaller share, or --validation_dir.");
  const auto order = data::NumpyRandom(uint64_t(seed)).permutation(count);
  std::vector<int64_t> train, validation;
  for (int64_t i = 0; i < count; ++i)
    (i < held_out ? validation : train)
        .push_back(images.train.rows[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  images.validation = {images.train.source, std::move(validation)};
  images.train.rows = std::move(train);
}

/// `shuffle(seed).select(range(count))`.
void take_samples(ImageSplit& split, std::optional<int64_t> count, int64_t seed, const char* flag) {
  if (!split || !count) return;
  const auto rows = static_cast<int64_t>(split.rows.size());
  if (*count > rows)
    throw Error("G-TASK-9", ErrorKind::usage,
                fmt::format("--{} {}: there are only {} images", flag, *count, rows),
                "Give a smaller number, or leave the flag out.");
  const auto order = data::NumpyRandom(uint64_t(seed)).permutation(rows);
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < *count; ++i)
    taken.push_back(split.rows[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  split.rows = std::move(taken);
}

}  // namespace

void add_options(OptionSet& options, ImageDataFlags& flags) {
  options.add(flags, std::span<const OptionRow<ImageDataFlags>>(kImageDataRows));
}

void check_image_flags(const TrainingArguments& args, const ImageDataFlags& flags) {
  const auto& f = flags;
  if (f.dataset_name && (f.train_dir || f.validation_dir))
    refuse_images("both --dataset_name and folders of images are given: expected one of them",
                  "Leave one out.");
  if (f.dataset_name && !fs::exists(expand_user(*f.dataset_name)))
    refuse_images(fmt::format("there is no data set {} (--dataset_name): expected fashion_mnist or "
                              "a folder",
                              *f.dataset_name),
                  "Check the path; gradus does not fetch data sets from a hub.");
  const std::pair<const char*, const std::optional<std::string>*> folders[] = {
      {"train_dir", &f.train_dir}, {"validation_dir", &f.validation_dir}};
  for (const auto& [flag, folder] : folders)
    if (*folder && !fs::is_directory(expand_user(**folder)))
      refuse_images(fmt::format("there is no folder {} (--{})", **folder, flag), "Check the path.");
  if (f.dataset_name) return;
  if (args.do_train && !f.train_dir)
    refuse_images("--do_train requires a train dataset: --train_dir is not set",
                  "Name the folder with --train_dir.");
  const bool splits = f.train_dir && f.train_val_split.value_or(0.0) > 0.0;
  if ((args.do_eval || args.do_predict) && !f.validation_dir && !splits)
    refuse_images("--do_eval requires a validation dataset: --validation_dir is not set",
                  "Name the folder with --validation_dir, or give a --train_val_split above 0.");
}

LabeledImages open_image_splits(const TrainingArguments& args, const ImageDataFlags& flags) {
  auto images = open_sources(flags);
  const auto share = flags.train_val_split.value_or(0.0);
  if (!images.validation && share > 0.0) split_off(images, share, args.seed);
  const bool evaluates = args.do_eval || args.do_predict;
  if (!args.do_train) images.train = {};
  if (!evaluates) images.validation = {};
  if ((args.do_train && !images.train) || (evaluates && !images.validation))
    throw Error("G-TASK-9", ErrorKind::data,
                fmt::format("--{} requires images that {} does not hold",
                            args.do_train && !images.train ? "do_train" : "do_eval",
                            flags.dataset_name.value_or("the data")),
                "Name the files train… and validation…, or give --train_val_split.");
  take_samples(images.train, flags.max_train_samples, args.seed, "max_train_samples");
  take_samples(images.validation, flags.max_eval_samples, args.seed, "max_eval_samples");
  if (flags.skip_bad_rows > 0)
    for (auto* split : {&images.train, &images.validation})
      if (*split)
        split->rows = readable_images(*split->source, std::move(split->rows), flags.skip_bad_rows);
  return images;
}

}  // namespace gradus::tasks
