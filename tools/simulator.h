/* The simulator's library beside the command: its reports. */
#ifndef GLINT_TOOLS_SIMULATOR_H
#define GLINT_TOOLS_SIMULATOR_H

#include "cuda/simulator.h"
#include "engine.h"
#include "sim.h"

/* The interface of the library that the sim engine has loaded too. NULL: not usable, error says why. */
const glint_sim_interface *simulator_find(glint_error *error);

/* The report of the device that ran since the last reset; NULL: none did. */
const sim_report *simulator_report(const glint_sim_interface *simulator);
void simulator_reset(const glint_sim_interface *simulator);

#endif
