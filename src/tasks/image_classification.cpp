// run_image_classification.py: a class for an image. Data comes from folders, tables of images, or
// idx files.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/data/images.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/image_classifier.h>

#include <numeric>

#include "tasks/image_data.h"
#include "tasks/registry.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

struct IdxFlags {
  std::optional<std::string> train_images = std::nullopt;
  std::optional<std::string> train_labels = std::nullopt;
  std::optional<std::string> validation_images = std::nullopt;
  std::optional<std::string> validation_labels = std::nullopt;

  bool any() const {
    return train_images || train_labels || validation_images || validation_labels;
  }
};
constexpr OptionRow<IdxFlags> kIdxRows[] = {
    {&IdxFlags::train_images, "train_images", Group::data, any_value(),
     "Images to train on: an idx file, plain or .gz.", Origin::gradus},
    {&IdxFlags::train_labels, "train_labels", Group::data, any_value(),
     "Their labels: an idx file, plain or .gz.", Origin::gradus},
    {&IdxFlags::validation_images, "validation_images", Group::data, any_value(),
     "Images to evaluate and predict on.", Origin::gradus},
    {&IdxFlags::validation_labels, "validation_labels", Group::data, any_value(), "Their labels.",
     Origin::gradus},
};

struct ImageModelFlags {
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::optional<std::string> model_type = std::nullopt;
  std::optional<std::string> config_overrides = std::nullopt;
  std::optional<std::string> config_name = std::nullopt;
  std::optional<std::string> cache_dir = std::nullopt;
  std::string model_revision = "main";
  std::optional<std::string> image_processor_name = std::nullopt;
  std::optional<std::string> token = std::nullopt;
  bool trust_remote_code = false;
  bool ignore_mismatched_sizes = false;
  std::string network = "small-cnn";
  int64_t num_labels = 10;
};
constexpr std::string_view kNetworks[] = {"small-cnn"};
constexpr OptionRow<ImageModelFlags> kImageModelRows[] = {
    {&ImageModelFlags::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "The folder of a trained model to start from; without it the weights are fresh."},
    {&ImageModelFlags::model_type, "model_type", Group::model, any_value(),
     "Fresh weights of this architecture with its default configuration: vit, resnet, convnext."},
    {&ImageModelFlags::config_overrides, "config_overrides", Group::model, any_value(),
     "Changes to that configuration: hidden_size=64,num_hidden_layers=2", Origin::gradus},
    {&ImageModelFlags::config_name, "config_name", Group::model, any_value(),
     "A config.json, or a folder with one, in place of the model's; without a model: fresh "
     "weights."},
    {&ImageModelFlags::cache_dir, "cache_dir", Group::model, any_value(),
     "Accepted for compatibility: nothing is fetched from a hub."},
    {&ImageModelFlags::model_revision, "model_revision", Group::model, any_value(),
     "Accepted for compatibility: nothing is fetched from a hub."},
    {&ImageModelFlags::image_processor_name, "image_processor_name", Group::model, any_value(),
     "A preprocessor_config.json, or a folder with one, when it is not the model's."},
    {&ImageModelFlags::token, "token", Group::model, any_value(),
     "Accepted for compatibility: nothing is fetched from a hub."},
    {&ImageModelFlags::trust_remote_code, "trust_remote_code", Group::model, any_value(),
     "Accepted for compatibility: no code of a model folder is ever run."},
    {&ImageModelFlags::ignore_mismatched_sizes, "ignore_mismatched_sizes", Group::model,
     any_value(), "Initialise a head of another size instead of reporting an error."},
    {&ImageModelFlags::network, "network", Group::model, one_of(kNetworks),
     "The network that fresh weights are made for when no other flag names a model.",
     Origin::gradus},
    {&ImageModelFlags::num_labels, "num_labels", Group::model, at_least(2),
     "Classes of a fresh network for idx files.", Origin::gradus},
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

[[noreturn]] void refuse_image_task(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-4", ErrorKind::usage, message, advice);
}

/// `model_type` in the config.json of a folder; empty when it has none.
std::string type_of_folder(const std::string& folder) {
  const auto file = expand_user(folder) / "config.json";
  if (!fs::exists(file)) return "";
  const auto config = read_json(file);
  if (!config.is_object()) return "";
  const auto found = config.find("model_type");
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

/// As the script writes them: numbers are text.
nlohmann::json label_tables(const std::vector<std::string>& names) {
  nlohmann::json changes = {{"num_labels", names.size()},
                            {"id2label", nlohmann::json::object()},
                            {"label2id", nlohmann::json::object()}};
  for (size_t i = 0; i < names.size(); ++i) {
    changes["id2label"][std::to_string(i)] = names[i];
    changes["label2id"][names[i]] = std::to_string(i);
  }
  return changes;
}

class ImageClassification : public Task {
 public:
  std::string name() const override { return "image-classification"; }
  void add_options(OptionSet& options) override {
    tasks::add_options(options, data_);
    options.add(idx_, std::span<const OptionRow<IdxFlags>>(kIdxRows));
    options.add(model_, std::span<const OptionRow<ImageModelFlags>>(kImageModelRows));
  }

  void check(const TrainingArguments& args) const override {
    if (reads_idx())
      check_idx(args);
    else
      tasks::check_image_flags(args, data_);
    if (model_.model_name_or_path && !fs::is_directory(expand_user(*model_.model_name_or_path)))
      refuse_image_task("there is no folder " + *model_.model_name_or_path,
                        "Name the folder of a trained model.");
    if (!args.do_train && !model_.model_name_or_path)
      refuse_image_task("there is no model to use: --model_name_or_path is not set",
                        "Name the folder of a trained model.");
    const auto fresh = fresh_flags();
    if (!is_small_cnn())
      tasks::check_model_flags(common_flags(),
                               {.fresh = &fresh, .do_train = args.do_train, .tokenizer = false});
    else if (!reads_idx())
      refuse_image_task(
          "there is no model: expected --model_name_or_path, or --model_type or --config_name for "
          "fresh weights",
          "Name one: --model_type vit, say.");
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    PreparedTask prepared;
    if (reads_idx())
      prepare_idx(args, prepared);
    else
      prepare_images(args, prepared);
    prepared.trainer.data_collator = default_data_collator;
    prepared.trainer.compute_metrics = accuracy;
    return prepared;
  }

 private:
  struct Splits {
    std::shared_ptr<const Dataset> train, test;
  };

  bool reads_idx() const {
    return idx_.any() || data_.dataset_name == "fashion_mnist" || !has_data();
  }
  bool has_data() const { return data_.dataset_name || data_.train_dir || data_.validation_dir; }

  bool is_small_cnn() const {
    if (model_.config_name || model_.model_type) return false;
    return !model_.model_name_or_path || type_of_folder(*model_.model_name_or_path) == "small-cnn";
  }

  tasks::FreshModelFlags fresh_flags() const {
    return {.model_type = model_.model_type, .config_overrides = model_.config_overrides};
  }
  tasks::ModelFlags common_flags() const {
    tasks::ModelFlags flags;
    flags.model_name_or_path = model_.model_name_or_path;
    flags.config_name = model_.config_name;
    return flags;
  }

  std::shared_ptr<PreTrainedModel> load(const nlohmann::json& changes) const {
    return tasks::load_model(ModelTask::image_classification, common_flags(), fresh_flags(),
                             changes, model_.ignore_mismatched_sizes);
  }

  std::shared_ptr<ImageProcessor> load_processor(const PreTrainedModel& model) const {
    if (model_.image_processor_name)
      return ImageProcessor::from_pretrained(*model_.image_processor_name);
    if (model_.model_name_or_path)
      return ImageProcessor::from_pretrained(*model_.model_name_or_path);
    return ImageProcessor::for_model(model.config_json());
  }

  void prepare_images(const TrainingArguments& args, PreparedTask& prepared) const {
    const auto images = tasks::open_image_splits(args, data_);
    const auto model = load(label_tables(images.class_names));
    const auto processor = load_processor(*model);
    const auto rows = [&](const tasks::ImageSplit& split, bool augment) {
      auto transform = image_transform(*processor, augment);
      transform.scaled_decoding = data_.scaled_decoding;
      return split ? reference(image_dataset(split.source, split.rows, transform)) : DatasetRef();
    };
    prepared.trainer.model = model;
    prepared.trainer.processing_class = processor;
    prepared.trainer.train_dataset = rows(images.train, true);
    prepared.trainer.eval_dataset = rows(images.validation, false);
    prepared.predict_dataset = rows(images.validation, false);
    prepared.write_predictions = writer_of(images.class_names);
  }

  using PredictionWriter = std::function<void(const PredictionOutput&, const fs::path&)>;

  /// Writes the names of classes, or their numbers where they have none.
  static PredictionWriter writer_of(std::vector<std::string> names) {
    return [names = std::move(names)](const PredictionOutput& output, const fs::path& folder) {
      std::string text = "index\tprediction\n";
      const auto classes = output.predictions.argmax(-1);
      for (int64_t i = 0; i < classes.size(0); ++i) {
        const auto number = classes[i].item<int64_t>();
        text += fmt::format(
            "{}\t{}\n", i,
            names.empty() ? std::to_string(number) : names.at(static_cast<size_t>(number)));
      }
      write_file_atomically(folder / "predict_results.txt", text);
    };
  }

  void check_idx(const TrainingArguments& args) const {
    const auto& o = idx_;
    if (has_data() && o.any())
      refuse_image_task(
          data_.dataset_name
              ? "image-classification received both --dataset_name and files of images: expected "
                "one of them"
              : "image-classification received both folders and idx files of images: expected one "
                "of them",
          "Leave one out.");
    if (args.do_train && !data_.dataset_name && (!o.train_images || !o.train_labels))
      refuse_image_task(
          "image-classification has nothing to train on: expected --train_dir, --dataset_name, or "
          "--train_images and --train_labels",
          "Name the data.");
    if ((args.do_eval || args.do_predict) && !data_.dataset_name &&
        (!o.validation_images || !o.validation_labels))
      refuse_image_task(
          "image-classification has nothing to evaluate on: expected --validation_dir, "
          "--dataset_name, or --validation_images and --validation_labels",
          "Name the data.");
    for (const auto* file :
         {&o.train_images, &o.train_labels, &o.validation_images, &o.validation_labels})
      if (*file && !fs::exists(**file))
        refuse_image_task("there is no file " + **file, "Check the path.");
  }

  void prepare_idx(const TrainingArguments& args, PreparedTask& prepared) const {
    std::shared_ptr<Model> model;
    auto num_labels = model_.num_labels;
    if (!is_small_cnn()) {
      auto changes = nlohmann::json::object();
      if (!model_.model_name_or_path) changes["num_labels"] = num_labels;
      const auto loaded = load(changes);
      num_labels = gradus::num_labels(loaded->config_json());
      model = loaded;
    } else if (model_.model_name_or_path) {
      model = load_image_classifier(*model_.model_name_or_path);
      num_labels = model->config().at("num_labels").get<int64_t>();
    }
    auto [train, test] = open_idx(args, num_labels);
    train = first_rows(train, data_.max_train_samples);
    test = first_rows(test, data_.max_eval_samples);
    const auto any = train ? train : test;
    if (!any || any->size() == 0)
      throw Error("G-TASK-5", ErrorKind::data, "the data contains no image", "Check the files.");
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
    prepared.predict_dataset = reference(test);
    prepared.write_predictions = writer_of({});
  }

  Splits open_idx(const TrainingArguments& args, int64_t num_labels) const {
    if (data_.dataset_name) {
      const auto both = fashion_mnist();
      return {args.do_train ? both.train : nullptr, both.test};
    }
    Splits splits;
    if (args.do_train)
      splits.train = idx_images(
          {.images = *idx_.train_images, .labels = *idx_.train_labels, .num_labels = num_labels});
    if (idx_.validation_images && idx_.validation_labels)
      splits.test = idx_images({.images = *idx_.validation_images,
                                .labels = *idx_.validation_labels,
                                .num_labels = num_labels});
    return splits;
  }

  tasks::ImageDataFlags data_;
  IdxFlags idx_;
  ImageModelFlags model_;
};

}  // namespace

std::unique_ptr<Task> make_image_classification() {
  return std::make_unique<ImageClassification>();
}

}  // namespace gradus
