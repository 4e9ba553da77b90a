/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive doubly linked list. The link is a member of the listed structure, and
 * `br_container_of` returns the structure. A list head and an unlinked link point to themselves.
 */
#pragma once

#include <stdbool.h>

struct br_list {
    struct br_list *next, *prev;
};

static inline void br_list_init(struct br_list *list)
{
    list->next = list->prev = list;
}

static inline bool br_list_empty(const struct br_list *list)
{
    return list->next == list;
}

/* Appends `list` to the list of `head`. */
static inline void br_list_append(struct br_list *head, struct br_list *list)
{
    list->prev = head->prev;
    list->next = head;
    head->prev->next = list;
    head->prev = list;
}

/* Removes `list` from its list. Does nothing to an unlinked, initialised link. */
static inline void br_list_remove(struct br_list *list)
{
    list->prev->next = list->next;
    list->next->prev = list->prev;
    br_list_init(list);
}

/* Removes and returns the first link, or returns NULL if the list is empty. */
static inline struct br_list *br_list_shift(struct br_list *head)
{
    if (br_list_empty(head))
        return 0;
    struct br_list *list = head->next;
    br_list_remove(list);
    return list;
}
