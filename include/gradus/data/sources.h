#pragma once

/// \file
/// Includes everything that turns files into data sets: loading, schemas, token files, prepared
/// rows that are cached, and the report of `gradus data show`. A program that reads files includes
/// this one header.
#include <gradus/data/cached_map.h>
#include <gradus/data/data_show.h>
#include <gradus/data/load_dataset.h>
#include <gradus/data/table_dataset.h>
#include <gradus/data/token_file.h>
#include <gradus/data/tokenize_file.h>
