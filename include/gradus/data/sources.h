#pragma once

// Everything that turns files into data sets.
#include <gradus/data/cached_map.h>
#include <gradus/data/data_show.h>
#include <gradus/data/load_dataset.h>
#include <gradus/data/table_dataset.h>
#include <gradus/data/token_file.h>
#include <gradus/data/tokenize_file.h>
