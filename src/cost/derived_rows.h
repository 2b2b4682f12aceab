// Rows of one TP rank for published tables that have none: lanes that share parameters need no more.
#pragma once

#include "cost/cost_model.h"

namespace sluice::cost {

// Adds <1,1> and <1,PP> for every PP that has a row with the smallest TP degree, if the table lacks them, and
// marks them as derived. Their source is a row with the smallest TP degree, because its collectives cost
// least: the one with the median a·TP·PP. From it come
//   a = a·TP·PP, b = b·TP·PP, c = c·PP (launches do not shrink with TP), bytes a token = bytes·TP·PP,
// each divided by the stages. Does nothing without a table.
void add_derived_rows(CostModel::Options& options);

}  // namespace sluice::cost
