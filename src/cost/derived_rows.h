// Rows of one TP rank for published tables that have none: lanes that share parameters need no more.
#pragma once

#include "cost/cost_model.h"

namespace sluice::cost {

// Adds <1,1> and <1,PP> for every PP with which the fewest TP ranks have a row, where the table lacks them,
// and marks them as derived. Of the rows with the fewest TP ranks, whose own collectives cost least, the one
// whose a·TP·PP is the median stands for all:
//   a = a·TP·PP, b = b·TP·PP, c = c·PP (launches do not shrink with TP), bytes a token = bytes·TP·PP,
// each divided by the stages. Does nothing without a table.
void add_derived_rows(CostModel::Options& options);

}  // namespace sluice::cost
