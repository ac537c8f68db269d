"""Reports: one page of facts, findings, tables and charts, and a renderer for each place where it is read"""
