// The sides of a worker's exchange with the rest of the job: with parameter servers (training_client.h) or with
// the other workers alone (worker/allreduce). A class takes only the sides that it uses.
#pragma once

#include "client/rows/row_exchange.h"
#include "client/training/job_control.h"
#include "client/training/membership.h"
#include "client/training/step_exchange.h"

namespace cairn::client {

struct Exchange {
  Membership& membership;
  StepExchange& steps;
  JobControl& control;
  RowExchange* rows = nullptr;  // null: there can be no tables
};

}  // namespace cairn::client
