/* Results as rows of named columns: a table for people (printed row by row), CSV, or JSON (printed at the end). */
#ifndef GLINT_TOOLS_REPORT_H
#define GLINT_TOOLS_REPORT_H

#include <cjson/cJSON.h>
#include <stdio.h>

typedef enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSON } report_format;

typedef struct report_column {
  const char *key;   /* in CSV and JSON */
  const char *title; /* in the table; NULL: not shown there */
  int width;         /* of the table's cell; negative: aligned to the left */
  const char *form;  /* printf form of a number in the table, e.g. "%.3f"; NULL: a text */
} report_column;

#define REPORT_COLUMNS 24
#define REPORT_CELL    128

typedef struct report {
  report_format format;
  const report_column *columns;
  int count, rows;
  int hidden[REPORT_COLUMNS]; /* not shown in the table */
  FILE *to;
  cJSON *list;                   /* JSON: finished rows */
  cJSON *extra;                  /* JSON: further members of the object that holds the rows; the caller adds to it */
  double number[REPORT_COLUMNS]; /* NaN with an empty text: the cell is empty */
  char text[REPORT_COLUMNS][REPORT_CELL];
} report;

void report_open(report *r, report_format format, const report_column *columns, int count, FILE *to);
/* The table does without this column; CSV and JSON keep it. */
void report_hide(report *r, const char *key);
/* Cells of the current row, by key; a key that no column has is ignored, so that one filler serves several tables. */
void report_text(report *r, const char *key, const char *text);
void report_number(report *r, const char *key, double number);
void report_row(report *r);
/* JSON: prints the object, with the rows under "results". */
void report_close(report *r);

#endif
