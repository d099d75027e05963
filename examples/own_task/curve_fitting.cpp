#include "curve_fitting.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>

namespace {

constexpr gradus::OptionRow<CurveFlags> kRows[] = {
    {&CurveFlags::rows, "rows", gradus::Group::data, gradus::at_least(2), "Points to train on."},
    {&CurveFlags::degree, "degree", gradus::Group::model, gradus::within(1, 9),
     "Degree of the polynomial."},
    {&CurveFlags::noise, "noise", gradus::Group::data, gradus::at_least(0),
     "Standard deviation of what is added to the curve."},
};

std::shared_ptr<gradus::Dataset> points(int64_t count, int64_t degree, double noise) {
  const auto at = torch::linspace(-1, 1, count).unsqueeze(1);
  const auto powers = at.pow(torch::arange(1, degree + 1));
  const auto values = torch::sin(3 * at) + noise * torch::randn_like(at);
  return gradus::from_tensors({{"powers", powers}, {"labels", values}});
}

}  // namespace

void CurveFitting::add_options(gradus::OptionSet& options) {
  options.add(flags_, std::span<const gradus::OptionRow<CurveFlags>>(kRows));
}

void CurveFitting::check(const gradus::TrainingArguments& args) const {
  if (args.fp16)
    throw gradus::Error("CURVE-1", gradus::ErrorKind::usage, "curve-fitting needs float32",
                        "Leave --fp16 away.");
}

gradus::PreparedTask CurveFitting::prepare(const gradus::TrainingArguments&) {
  gradus::PreparedTask prepared;
  prepared.trainer.model = gradus::make_model(
      torch::nn::Linear(flags_.degree, 1),
      [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        const auto y = linear.forward(batch["powers"]);
        return gradus::ModelOutput{{"loss", torch::mse_loss(y, batch["labels"])}, {"logits", y}};
      });
  prepared.trainer.train_dataset = points(flags_.rows, flags_.degree, flags_.noise);
  prepared.trainer.eval_dataset = gradus::DatasetRef(points(100, flags_.degree, 0.0));
  prepared.predict_dataset = points(10, flags_.degree, 0.0);
  prepared.write_predictions = [](const gradus::PredictionOutput& output,
                                  const std::filesystem::path& folder) {
    std::ofstream file(folder / "curve.txt");
    for (int64_t i = 0; i < output.predictions.size(0); ++i)
      file << output.predictions[i].item<double>() << '\n';
  };
  prepared.finish_eval_metrics = [](gradus::Metrics& metrics) {
    metrics["eval_rmse"] = std::sqrt(metrics.at("eval_loss"));
  };
  return prepared;
}
