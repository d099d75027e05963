#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/data/images.h>
#include <gradus/models/image_classifier.h>

#include <numeric>

#include "tasks/registry.h"

namespace gradus {
namespace {

struct ImageOptions {
  std::optional<std::string> dataset_name = std::nullopt;
  std::optional<std::string> train_images = std::nullopt;
  std::optional<std::string> train_labels = std::nullopt;
  std::optional<std::string> validation_images = std::nullopt;
  std::optional<std::string> validation_labels = std::nullopt;
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::string network = "small-cnn";
  int64_t num_labels = 10;
  std::optional<int64_t> max_train_samples = std::nullopt;
  std::optional<int64_t> max_eval_samples = std::nullopt;
};

constexpr std::string_view kDatasets[] = {"fashion_mnist"};
constexpr std::string_view kNetworks[] = {"small-cnn"};
constexpr OptionRow<ImageOptions> kRows[] = {
    {&ImageOptions::dataset_name, "dataset_name", Group::data, one_of(kDatasets),
     "An installed data set, in place of files."},
    {&ImageOptions::train_images, "train_images", Group::data, any_value(),
     "Images to train on: an idx file, plain or .gz.", Origin::gradus},
    {&ImageOptions::train_labels, "train_labels", Group::data, any_value(),
     "Their labels: an idx file, plain or .gz.", Origin::gradus},
    {&ImageOptions::validation_images, "validation_images", Group::data, any_value(),
     "Images to evaluate and predict on.", Origin::gradus},
    {&ImageOptions::validation_labels, "validation_labels", Group::data, any_value(),
     "Their labels.", Origin::gradus},
    {&ImageOptions::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "The folder of a trained model to start from; without it the weights are fresh."},
    {&ImageOptions::network, "network", Group::model, one_of(kNetworks),
     "The network that fresh weights are made for.", Origin::gradus},
    {&ImageOptions::num_labels, "num_labels", Group::model, at_least(2),
     "Classes of a fresh network.", Origin::gradus},
    {&ImageOptions::max_train_samples, "max_train_samples", Group::data, at_least(1),
     "Train on the first rows only."},
    {&ImageOptions::max_eval_samples, "max_eval_samples", Group::data, at_least(1),
     "Evaluate on the first rows only."},
};

std::shared_ptr<const Dataset> first_rows(std::shared_ptr<const Dataset> rows,
                                          std::optional<int64_t> most) {
  if (!rows || !most || *most >= rows->size()) return rows;
  std::vector<int64_t> indices(static_cast<size_t>(*most));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return rows->select(std::move(indices));
}

DatasetRef reference(const std::shared_ptr<const Dataset>& rows) {
  return rows ? DatasetRef(rows) : DatasetRef();
}

Metrics accuracy(const EvalPrediction& prediction) {
  return {{"accuracy", prediction.predictions.argmax(-1)
                           .eq(prediction.label_ids)
                           .to(torch::kDouble)
                           .mean()
                           .item<double>()}};
}

class ImageClassification : public Task {
 public:
  std::string name() const override { return "image-classification"; }
  void add_options(OptionSet& options) override {
    options.add(options_, std::span<const OptionRow<ImageOptions>>(kRows));
  }

  void check(const TrainingArguments& args) const override {
    const auto refuse = [](const std::string& message, const std::string& advice) {
      throw Error("G-TASK-4", ErrorKind::usage, message, advice);
    };
    const auto& o = options_;
    if (o.dataset_name &&
        (o.train_images || o.train_labels || o.validation_images || o.validation_labels))
      refuse(
          "image-classification received both --dataset_name and files of images: expected one of "
          "them",
          "Leave one out.");
    if (args.do_train && !o.dataset_name && (!o.train_images || !o.train_labels))
      refuse(
          "image-classification has nothing to train on: expected --dataset_name fashion_mnist, or "
          "--train_images and --train_labels",
          "Name the data.");
    if ((args.do_eval || args.do_predict) && !o.dataset_name &&
        (!o.validation_images || !o.validation_labels))
      refuse(
          "image-classification has nothing to evaluate on: expected --dataset_name fashion_mnist, "
          "or --validation_images and --validation_labels",
          "Name the data.");
    for (const auto* file :
         {&o.train_images, &o.train_labels, &o.validation_images, &o.validation_labels})
      if (*file && !std::filesystem::exists(**file))
        refuse("there is no file " + **file, "Check the path.");
    if (o.model_name_or_path && !std::filesystem::is_directory(*o.model_name_or_path))
      refuse("there is no folder " + *o.model_name_or_path, "Name the folder of a trained model.");
    if (!args.do_train && !o.model_name_or_path)
      refuse("there is no model to use: --model_name_or_path is not set",
             "Name the folder of a trained model.");
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto model =
        options_.model_name_or_path ? load_image_classifier(*options_.model_name_or_path) : nullptr;
    const auto num_labels =
        model ? model->config().at("num_labels").get<int64_t>() : options_.num_labels;
    auto [train, test] = open_data(args, num_labels);
    train = first_rows(train, options_.max_train_samples);
    test = first_rows(test, options_.max_eval_samples);
    const auto any = train ? train : test;
    if (!any || any->size() == 0)
      throw Error("G-TASK-5", ErrorKind::data, "the data contains no image", "Check the files.");
    PreparedTask prepared;
    if (model) {
      prepared.trainer.model = model;
    } else {
      const auto image = any->get(0).at("pixel_values").tensor();
      // model_init rather than a model: the weights come after seeding, so the same seed gives the
      // same run.
      prepared.trainer.model_init = [num_labels, channels = image.size(0), side = image.size(1)] {
        return make_image_classifier(
            {.num_labels = num_labels, .num_channels = channels, .image_size = side});
      };
    }
    prepared.trainer.train_dataset = reference(train);
    prepared.trainer.eval_dataset = reference(test);
    prepared.trainer.compute_metrics = accuracy;
    prepared.predict_dataset = reference(test);
    prepared.write_predictions = [](const PredictionOutput& output,
                                    const std::filesystem::path& folder) {
      std::string text = "index\tprediction\n";
      const auto classes = output.predictions.argmax(-1);
      for (int64_t i = 0; i < classes.size(0); ++i)
        text += fmt::format("{}\t{}\n", i, classes[i].item<int64_t>());
      write_file_atomically(folder / "predict_results.txt", text);
    };
    return prepared;
  }

 private:
  struct Splits {
    std::shared_ptr<const Dataset> train, test;
  };

  Splits open_data(const TrainingArguments& args, int64_t num_labels) const {
    if (options_.dataset_name) {
      const auto both = fashion_mnist();
      return {args.do_train ? both.train : nullptr, both.test};
    }
    Splits splits;
    if (args.do_train)
      splits.train = idx_images({.images = *options_.train_images,
                                 .labels = *options_.train_labels,
                                 .num_labels = num_labels});
    if (options_.validation_images && options_.validation_labels)
      splits.test = idx_images({.images = *options_.validation_images,
                                .labels = *options_.validation_labels,
                                .num_labels = num_labels});
    return splits;
  }

  ImageOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_image_classification() {
  return std::make_unique<ImageClassification>();
}

}  // namespace gradus
