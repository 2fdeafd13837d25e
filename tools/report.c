/* Results as rows of named columns. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"

static void clear_row(report *r) {
  for (int i = 0; i < r->count; i++) r->number[i] = NAN, r->text[i][0] = '\0';
}

void report_open(report *r, report_format format, const report_column *columns, int count, FILE *to) {
  *r = (report){.format = format, .columns = columns, .count = count, .to = to};
  if (format == REPORT_JSON) r->list = cJSON_CreateArray(), r->extra = cJSON_CreateObject();
  clear_row(r);
}

static int column_of(const report *r, const char *key) {
  for (int i = 0; i < r->count; i++)
    if (strcmp(r->columns[i].key, key) == 0) return i;
  return -1;
}

void report_hide(report *r, const char *key) {
  int i = column_of(r, key);
  if (i >= 0) r->hidden[i] = 1;
}

void report_text(report *r, const char *key, const char *text) {
  int i = column_of(r, key);
  if (i >= 0) snprintf(r->text[i], REPORT_CELL, "%s", text);
}

void report_number(report *r, const char *key, double number) {
  int i = column_of(r, key);
  if (i >= 0) r->number[i] = number;
}

static const char *table_cell(const report *r, int i, char *cell) {
  const char *form = r->columns[i].form;
  if (!form)
    snprintf(cell, REPORT_CELL, "%s", r->text[i][0] ? r->text[i] : "-");
  else if (isnan(r->number[i]))
    snprintf(cell, REPORT_CELL, "-");
  else
    snprintf(cell, REPORT_CELL, form, r->number[i]);
  return cell;
}

static void print_table_line(const report *r, int titles) {
  char cell[REPORT_CELL];
  for (int i = 0, shown = 0; i < r->count; i++) {
    if (!r->columns[i].title || r->hidden[i]) continue;
    fprintf(r->to, "%s%*s", shown++ ? "  " : "", r->columns[i].width, titles ? r->columns[i].title : table_cell(r, i, cell));
  }
  fputc('\n', r->to);
}

static void print_csv_line(const report *r, int titles) {
  for (int i = 0; i < r->count; i++) {
    if (i) fputc(',', r->to);
    if (titles)
      fputs(r->columns[i].key, r->to);
    else if (r->columns[i].form && !isnan(r->number[i]))
      fprintf(r->to, "%.7g", r->number[i]);
    else if (!r->columns[i].form)
      fprintf(r->to, strpbrk(r->text[i], ",\"") ? "\"%s\"" : "%s", r->text[i]);
  }
  fputc('\n', r->to);
}

static void add_json_row(report *r) {
  cJSON *row = cJSON_CreateObject();
  for (int i = 0; i < r->count; i++) {
    const report_column *column = &r->columns[i];
    if (!column->form && r->text[i][0])
      cJSON_AddStringToObject(row, column->key, r->text[i]);
    else if (column->form && isfinite(r->number[i]))
      cJSON_AddNumberToObject(row, column->key, r->number[i]);
    else
      cJSON_AddNullToObject(row, column->key);
  }
  cJSON_AddItemToArray(r->list, row);
}

void report_row(report *r) {
  progress_erase();
  if (r->format == REPORT_JSON) {
    add_json_row(r);
  } else {
    void (*print)(const report *, int) = r->format == REPORT_CSV ? print_csv_line : print_table_line;
    if (r->rows == 0) print(r, 1);
    print(r, 0);
    fflush(r->to);
  }
  r->rows++;
  clear_row(r);
}

void report_close(report *r) {
  progress_erase();
  if (r->format != REPORT_JSON) return;
  cJSON_AddItemToObject(r->extra, "results", r->list);
  char *text = cJSON_Print(r->extra);
  fprintf(r->to, "%s\n", text ? text : "{}");
  cJSON_free(text);
  cJSON_Delete(r->extra);
}
