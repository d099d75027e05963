/* Trains through the C interface, as a game, a database or another language would.
 *
 *   train EXPORTED_DIR OUTPUT_DIR     a causal language model (tools/export_model.py)
 *
 *   cc -std=c99 train.c -I PREFIX/include -L PREFIX/lib -lgradus -o train
 */
#include <gradus/gradus_c.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4, TOKENS = 16, STEPS = 20 };

static int check(gradus_status status, const gradus_error* error, const char* what) {
  if (status == GRADUS_OK) return 0;
  fprintf(stderr, "%s: status %d: %s\n", what, (int)status, error->text);
  return 1;
}

/* Wrong calls are answered, not punished. */
static int misuse(gradus_trainer closed) {
  gradus_error error;
  double loss;
  int64_t steps;
  const int64_t sizes[1] = {-3};
  const gradus_tensor bad = {"input_ids", GRADUS_INT64, 1, sizes, NULL};
  if (gradus_steps(closed, &steps, &error) != GRADUS_BAD_HANDLE) return 1;
  if (gradus_steps(0, &steps, NULL) != GRADUS_BAD_HANDLE) return 1;
  if (gradus_step(~(gradus_trainer)0, &bad, 1, &loss, &error) != GRADUS_BAD_HANDLE) return 1;
  if (gradus_close(closed, &error) != GRADUS_BAD_HANDLE) return 1;
  if (gradus_open(NULL, NULL, NULL, &closed, &error) != GRADUS_BAD_ARGUMENT) return 1;
  if (gradus_open("no such folder", NULL, NULL, &closed, &error) == GRADUS_OK) return 1;
  if (gradus_open("no such folder", NULL, "{", NULL, &error) != GRADUS_BAD_ARGUMENT) return 1;
  return 0;
}

int main(int argc, char** argv) {
  int64_t ids[ROWS * TOKENS];
  const int64_t sizes[2] = {ROWS, TOKENS};
  const gradus_tensor batch[2] = {{"input_ids", GRADUS_INT64, 2, sizes, ids},
                                  {"labels", GRADUS_INT64, 2, sizes, ids}};
  const char* options = "{\"learning_rate\": 0.001, \"max_steps\": 20, \"max_grad_norm\": 1.0}";
  gradus_trainer trainer = 0;
  gradus_error error;
  double first = 0.0, loss = 0.0, saved = 0.0;
  int64_t steps = 0;
  int i;

  if (argc < 3) {
    fprintf(stderr, "usage: train EXPORTED_DIR OUTPUT_DIR\n");
    return 2;
  }
  for (i = 0; i < ROWS * TOKENS; ++i) ids[i] = 5 + (i * 7) % 60;
  if (check(gradus_open(argv[1], NULL, options, &trainer, &error), &error, "open")) return 1;
  for (i = 0; i < STEPS; ++i) {
    if (check(gradus_step(trainer, batch, 2, &loss, &error), &error, "step")) return 1;
    if (i == 0) first = loss;
  }
  if (check(gradus_steps(trainer, &steps, &error), &error, "steps")) return 1;
  if (check(gradus_evaluate(trainer, batch, 2, &loss, &error), &error, "evaluate")) return 1;
  if (check(gradus_save(trainer, argv[2], &error), &error, "save")) return 1;
  if (check(gradus_step(trainer, batch, 2, NULL, &error), &error, "step")) return 1;
  if (check(gradus_load(trainer, argv[2], &error), &error, "load")) return 1;
  if (check(gradus_evaluate(trainer, batch, 2, &saved, &error), &error, "evaluate")) return 1;
  if (gradus_step(trainer, NULL, 2, &loss, &error) != GRADUS_BAD_ARGUMENT) return 1;
  if (check(gradus_close(trainer, &error), &error, "close")) return 1;
  printf("%d steps, loss %.4f to %.4f\n", (int)steps, first, saved);
  if (misuse(trainer)) {
    fprintf(stderr, "a wrong call was not refused\n");
    return 1;
  }
  return steps == STEPS && saved < first && saved == loss ? 0 : 1;
}
