// Style sheets are imported for their effect: the bundler puts them into the page's own style sheet.
declare module "*.css";
