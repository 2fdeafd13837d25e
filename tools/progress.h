/* One line on the terminal that says what is being done, shown once it has taken more than a second. Nothing when stderr is no terminal. */
#ifndef GLINT_TOOLS_PROGRESS_H
#define GLINT_TOOLS_PROGRESS_H

void progress_start(void);
/* What is being done now; step of total when total > 0. Copied. */
void progress_say(const char *what, long step, long total);
/* Takes the line away, for other output; the next tick draws it again. */
void progress_erase(void);
void progress_stop(void);

#endif
