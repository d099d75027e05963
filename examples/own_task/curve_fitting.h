#pragma once

#include <gradus/tasks/task.h>

/// The flags of the task.
struct CurveFlags {
  int64_t rows = 512;  ///< points to train on
  int64_t degree = 5;  ///< of the polynomial
  double noise = 0.0;  ///< added to the values of the curve
};

/// Fits a polynomial to a sine curve: model, data and metrics in one object.
class CurveFitting : public gradus::Task {
 public:
  std::string name() const override { return "curve-fitting"; }
  void add_options(gradus::OptionSet& options) override;
  void check(const gradus::TrainingArguments& args) const override;
  gradus::PreparedTask prepare(const gradus::TrainingArguments& args) override;

 private:
  CurveFlags flags_;
};
